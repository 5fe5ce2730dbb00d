"""One connection that sends requests as no client would, and reads the answers a frame at a time."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from edge_broker.handlers import APIS
from edge_broker.protocol.api import API_VERSIONS, FETCH, INIT_PRODUCER_ID, LIST_OFFSETS, METADATA, PRODUCE
from edge_broker.protocol.codec import decode, encode
from edge_broker.protocol.message import Message
from edge_broker.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from edge_broker.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

TIMEOUT_S = 120  # of a busy machine
VERSIONS = {PRODUCE: 9, FETCH: 12, LIST_OFFSETS: 6, METADATA: 12, API_VERSIONS: 3, INIT_PRODUCER_ID: 4}


class RawClient:
    """Asks and waits for the answer; the versions are those that Apache Kafka 3.9 and 4.3 both serve."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def ask(self, key: int, request: Message) -> Message:
        """Send one request and read its answer."""
        version = VERSIONS[key]
        header = key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\x05\0\x01t\0"
        self.send(header + b"".join(encode(request, version)))
        body = self.receive()
        assert body[:4] == b"\0\0\0\x05"
        return decode(APIS[key].response, version, memoryview(body), 4 if key == API_VERSIONS else 5)

    def send(self, frame: bytes) -> None:
        """Send a frame's content behind its size."""
        self.connection.sendall(len(frame).to_bytes(4, "big") + frame)

    def receive(self) -> bytes:
        """The next frame's content."""
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def _exactly(self, size: int) -> bytes:
        got = bytearray()
        while len(got) < size:
            part = self.connection.recv(size - len(got))
            if not part:
                raise ConnectionError("the broker closed the connection")
            got += part
        return bytes(got)

    def is_closed_by_the_broker(self) -> bool:
        """Whether the broker ends the connection."""
        try:
            return self.connection.recv(1) == b""
        except ConnectionResetError:
            return True

    def produce(self, topic: str, records: bytes, *, acks: int = -1, partition: int = 0) -> PartitionProduceResponse:
        """What is answered for one batch."""
        data = PartitionProduceData(index=partition, records=memoryview(records))
        topic_data = [TopicProduceData(name=topic, partition_data=[data])]
        response = self.ask(PRODUCE, ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=topic_data))
        assert isinstance(response, ProduceResponse)
        return response.responses[0].partition_responses[0]

    def end_offset(self, topic: str) -> int:
        """The high watermark of partition 0."""
        wanted = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(timestamp=-1)])
        response = self.ask(LIST_OFFSETS, ListOffsetsRequest(replica_id=-1, topics=[wanted]))
        assert isinstance(response, ListOffsetsResponse)
        return response.topics[0].partitions[0].offset


@contextmanager
def connected(bootstrap: str, timeout_s: float = TIMEOUT_S) -> Iterator[RawClient]:
    """A connection to the broker at HOST:PORT; `timeout_s` bounds each step of it."""
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=timeout_s) as connection:
        yield RawClient(connection)
