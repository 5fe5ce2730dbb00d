"""What a poll of an idle consumer costs with and without a fetch session, in one run, at one broker.

`python -m tests.benchmarks.idle_fetches` starts an edge broker with 300 empty partitions, and one client that polls all
of them, each time for WAIT_MS. Without a session each poll names all of them, and is answered with all, as a broker
without sessions makes every client do. Rounds of both kinds take turns; each figure is the median of them. CPU is the
broker's.

Lives here: that. Must never come in: real consumers, whose polls are the same.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from edge_broker.protocol.api import CREATE_TOPICS, FETCH, METADATA
from edge_broker.protocol.codec import encode
from edge_broker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from edge_broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from edge_broker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.benchmarks.broker import cpu_s
from tests.differential.wire import Connection
from tests.support.processes import EdgeBroker

TOPICS, PARTITIONS = 3, 100
ROUNDS, POLLS, WAIT_MS = 7, 300, 2
VERSION = 17


class Cost(NamedTuple):
    """Of one poll: bytes of the request and of the answer, CPU of the broker in ms."""

    request_bytes: float
    answer_bytes: float
    cpu_ms: float


def _ask(connection: Connection, key: int, request: Any, version: int) -> Any:
    connection.send(key, request, version)
    return connection.receive()


def _topics(connection: Connection) -> list[UUID]:
    names = [f"idle-{number}" for number in range(TOPICS)]
    wanted = [CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1) for name in names]
    made = _ask(connection, CREATE_TOPICS, CreateTopicsRequest(topics=wanted, timeout_ms=30_000), 7)
    assert not any(topic.error_code for topic in made.topics), made
    described = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    return [topic.topic_id for topic in _ask(connection, METADATA, described, 12).topics]


def _request(ids: list[UUID], session: int, epoch: int) -> FetchRequest:
    asked = [
        FetchPartition(partition=index, fetch_offset=0, last_fetched_epoch=-1, partition_max_bytes=1 << 20)
        for index in range(PARTITIONS)
    ]
    topics = [FetchTopic(topic_id=each, partitions=asked) for each in ids] if epoch <= 0 else []
    return FetchRequest(
        max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=52_428_800, session_id=session, session_epoch=epoch, topics=topics
    )


def _round(broker: EdgeBroker, connection: Connection, ids: list[UUID], *, sessions: bool) -> Cost:
    session, epoch = 0, -1
    if sessions:
        session = _ask(connection, FETCH, _request(ids, 0, 0), VERSION).session_id
        epoch = 1
        assert session > 0, "the broker declines sessions"
    asked = answered = 0
    before = cpu_s(broker)
    for _ in range(POLLS):
        request = _request(ids, session, epoch)
        answer = _ask(connection, FETCH, request, VERSION)
        assert answer.error_code == 0, answer
        asked += sum(map(len, encode(request, VERSION)))
        answered += sum(map(len, encode(answer, VERSION)))
        epoch = epoch + 1 if sessions else -1
    return Cost(asked / POLLS, answered / POLLS, (cpu_s(broker) - before) / POLLS * 1000)


def measure() -> dict[str, Cost]:
    """Medians of both kinds."""
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        broker = stack.enter_context(EdgeBroker(Path(directory)))
        connection = stack.enter_context(Connection(broker.bootstrap))
        ids = _topics(connection)
        rounds: dict[str, list[Cost]] = {"without": [], "with": []}
        for number in range(ROUNDS):
            kinds = ["without", "with"]
            for kind in kinds if number % 2 == 0 else kinds[::-1]:
                rounds[kind].append(_round(broker, connection, ids, sessions=kind == "with"))
    return {kind: Cost(*map(statistics.median, zip(*costs, strict=True))) for kind, costs in rounds.items()}


def main() -> int:
    """Print the table."""
    found = measure()
    without, within = found["without"], found["with"]
    print(f"| a poll of {TOPICS * PARTITIONS} idle partitions | no session | session | ratio |\n|---|---:|---:|---:|")
    for name, before, after in zip(("request, bytes", "answer, bytes", "CPU, ms"), without, within, strict=True):
        print(f"| {name} | {before:.4g} | {after:.4g} | {after / before:.3f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
