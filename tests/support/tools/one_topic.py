"""A broker with one topic, as the tools ask it."""

from __future__ import annotations

from edge_broker.protocol.api import FETCH, LIST_OFFSETS, METADATA
from edge_broker.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from edge_broker.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from edge_broker.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


class OneTopic:
    """Topic t with one partition from `start` to `end`, its batches one after the other; `cut` bytes fit in an answer.

    A fetch begins with the batch that holds its offset, or the next one, and what does not fit is cut off.
    """

    def __init__(self, batches: list[tuple[int, int, bytes]], start: int, end: int, cut: int = 1 << 20) -> None:
        self.batches = batches
        self.start, self.end, self.cut = start, end, cut
        self.answers = {METADATA: self.metadata, LIST_OFFSETS: self.offsets, FETCH: self.fetch}

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        partition = MetadataResponsePartition(partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1])
        names = [topic.name for topic in request.topics] if request.topics is not None else ["t"]
        topics = [
            MetadataResponseTopic(name=name, partitions=[partition]) if name == "t"
            else MetadataResponseTopic(name=name, error_code=3)
            for name in names
        ]  # fmt: skip
        broker = MetadataResponseBroker(node_id=1, host="nowhere.invalid", port=1)
        return MetadataResponse(brokers=[broker], cluster_id="c", topics=topics)

    def offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        timestamp = request.topics[0].partitions[0].timestamp
        offset = {-1: self.end, -2: self.start}.get(timestamp, -1)
        found = ListOffsetsPartitionResponse(partition_index=0, offset=offset)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[found])])

    def fetch(self, request: FetchRequest) -> FetchResponse:
        wanted = request.topics[0].partitions[0]
        data = b"".join(batch for _, last, batch in self.batches if last >= wanted.fetch_offset)
        records = memoryview(data[: min(self.cut, wanted.partition_max_bytes)])
        if wanted.fetch_offset < self.start:
            records = memoryview(b"")
        code = 1 if wanted.fetch_offset < self.start else 0
        found = PartitionData(partition_index=0, error_code=code, high_watermark=self.end, records=records)
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[found])])
