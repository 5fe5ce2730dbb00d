"""The honest client, in a process of its own: it produces, fetches and asks, one request at a time, as devices do.

`python -m tests.abuse.honest PORT`. For each line on its standard input it prints how long its requests took since the
last one, as JSON; at the end of the input it reads everything back and says what is missing of what was acked.
"""

from __future__ import annotations

import json
import random
import selectors
import socket
import sys
import time
from typing import Any

from edge_broker.handlers import APIS
from edge_broker.protocol.api import API_VERSIONS, CREATE_TOPICS, FETCH, LIST_OFFSETS, METADATA, PRODUCE
from edge_broker.protocol.codec import decode, encode
from edge_broker.protocol.message import Message
from edge_broker.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfigs, CreateTopicsRequest
from edge_broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from edge_broker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from edge_broker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from edge_broker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from edge_broker.protocol.record_batch import build_batch, records_of
from edge_broker.storage.log.log_reader import whole_batches
from tests.abuse.frames import COMPACTED, HIDDEN, TOPIC

MINE = "honest"
VERSIONS = {PRODUCE: 9, FETCH: 4, METADATA: 4, LIST_OFFSETS: 2, CREATE_TOPICS: 4, API_VERSIONS: 0}
ANSWER_S_MAX = 60.0
REST_S = 0.005


class Client:
    """One connection; a request that is not answered in ANSWER_S_MAX ends the process with a traceback."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S_MAX)
        self.acked: dict[int, bytes] = {}
        self.seconds: dict[str, list[float]] = {}

    def ask(self, key: int, message: Message) -> Any:
        """One request and its answer."""
        version = VERSIONS[key]
        head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\1\0\6honest"
        body = b"".join(encode(message, version))
        flexible = version >= APIS[key].flexible_from
        frame = head + (b"\0" if flexible else b"") + body
        begin = time.perf_counter()
        self.sock.sendall(len(frame).to_bytes(4, "big") + frame)
        answer = self._exactly(int.from_bytes(self._exactly(4), "big"))
        self.seconds.setdefault(APIS[key].name, []).append(time.perf_counter() - begin)
        return decode(APIS[key].response, version, memoryview(answer), 5 if flexible else 4)

    def _exactly(self, size: int) -> bytes:
        got = bytearray()
        while len(got) < size:
            part = self.sock.recv(size - len(got))
            if not part:
                raise ConnectionError("the broker closed the honest client's connection")
            got += part
        return bytes(got)

    def set_up(self) -> None:
        """Make the topics, also those that are abused; whoever comes second finds them there."""
        compact = [CreatableTopicConfigs(name="cleanup.policy", value="compact")]
        topics = [
            CreatableTopic(name=name, num_partitions=count, replication_factor=1, configs=configs)
            for name, count, configs in (
                (MINE, 1, []),
                (TOPIC, 4, []),
                (COMPACTED, 1, compact),
                (HIDDEN.decode(), 1, []),
            )
        ]
        self.ask(CREATE_TOPICS, CreateTopicsRequest(topics=topics, timeout_ms=30_000))

    def produce(self, acks: int) -> None:
        """One record of random bytes, kept with its offset once it is acked."""
        value = random.randbytes(100)
        batch = build_batch([(None, value)], timestamp_ms=int(time.time() * 1000))
        partition = PartitionProduceData(index=0, records=memoryview(batch))
        data = [TopicProduceData(name=MINE, partition_data=[partition])]
        answer = self.ask(PRODUCE, ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=data))
        found = answer.responses[0].partition_responses[0]
        if found.error_code == 0:
            self.acked[found.base_offset] = value

    def fetch(self, offset: int, bytes_max: int) -> Any:
        """One fetch that does not wait."""
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=bytes_max)
        topics = [FetchTopic(topic=MINE, partitions=[partition])]
        return self.ask(FETCH, FetchRequest(replica_id=-1, max_wait_ms=0, max_bytes=bytes_max, topics=topics))

    def round(self, number: int) -> None:
        """What a small client does."""
        self.produce(-1 if number % 4 == 0 else 1)
        self.fetch(max(self.acked, default=0), 4096)
        if number % 5 == 0:
            self.ask(METADATA, MetadataRequest(topics=[MetadataRequestTopic(name=MINE)]))
            wanted = [ListOffsetsTopic(name=MINE, partitions=[ListOffsetsPartition(timestamp=-2)])]
            self.ask(LIST_OFFSETS, ListOffsetsRequest(replica_id=-1, topics=wanted))

    def missing(self) -> list[int]:
        """Offsets that were acked and cannot be read as they were written."""
        found: dict[int, bytes | None] = {}
        offset, end = 0, max(self.acked, default=-1)
        deadline = time.monotonic() + ANSWER_S_MAX
        while offset <= end and time.monotonic() < deadline:
            records = memoryview(self.fetch(offset, 1 << 20).responses[0].partitions[0].records or b"")
            for batch in whole_batches(records):
                found.update({record.offset: record.value for record in records_of(batch)})
            offset = max(found, default=-1) + 1
        return [offset for offset, value in self.acked.items() if found.get(offset) != value]


def main() -> None:
    """Work until the input ends."""
    client = Client(int(sys.argv[1]))
    client.set_up()
    client.seconds.clear()
    selector = selectors.DefaultSelector()
    selector.register(sys.stdin, selectors.EVENT_READ)
    print("ready", flush=True)
    number = 0
    while True:
        client.round(number)
        number += 1
        if selector.select(REST_S):
            if not sys.stdin.readline():
                break
            print(json.dumps(client.seconds), flush=True)
            client.seconds.clear()
    print(json.dumps({"acked": len(client.acked), "missing": client.missing()}), flush=True)


if __name__ == "__main__":
    main()
