"""Clusters in memory for mirrors that face each other: logs of batches, each with its writer and its records' ways.

A `Copy` is a record as it lies in one cluster: its number, and all clusters and mirrors that it has passed. State
topics hold the bytes that a mirror writes, so that claims are read as they are from a broker.
No assertion may live here, and no rule of the mirror.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any, NamedTuple

from edge_broker.errors import ErrorCode
from edge_broker.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from edge_broker.protocol.record_batch import BatchHeader, build_batch, records_of
from kafka_wire.cluster import Leader, Topic
from kafka_wire.partitions import TopicPartition
from kafka_wire.records.batches import CONTROL_KIND, Piece, SkippedRange, pieces_of
from mirror.errors import TargetError
from mirror.partition.state_records import Record


class Copy(NamedTuple):
    """A record in one cluster: `path` are the clusters that it was in, this one last; `hops` the mirrors between."""

    number: int
    path: tuple[str, ...]
    hops: tuple[str, ...] = ()


class Written(NamedTuple):
    """A batch, or a marker, which has no copies."""

    piece: Piece | SkippedRange
    copies: tuple[Copy, ...]
    writer: str


class Log:
    """One partition; each record takes an offset, and so does a marker."""

    def __init__(self) -> None:
        self.written: list[Written] = []
        self.end = 0

    def append(self, copies: Iterable[Copy], writer: str, producer_id: int, epoch: int) -> None:
        """Append a batch of a producer."""
        some = tuple(copies)
        data = build_batch(
            [(None, b"%d" % one.number) for one in some],
            timestamp_ms=0,
            base_offset=self.end,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        end = self.end + len(some)
        piece = Piece(BatchHeader(data), memoryview(data), self.end, end)
        self.written.append(Written(piece, some, writer))
        self.end = end

    def mark(self, writer: str) -> None:
        """Append the marker of a fence."""
        self.written.append(Written(SkippedRange(self.end, self.end + 1, CONTROL_KIND), (), writer))
        self.end += 1

    def from_offset(self, offset: int) -> list[Written]:
        """Return what lies at and above an offset."""
        return [one for one in self.written if one.piece.end_offset > offset]


class StateLog:
    """One partition of a state topic, as bytes."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []

    @property
    def end(self) -> int:
        """The next offset."""
        return len(self.batches)

    def append(self, record: Record) -> None:
        """Append one record, a batch of its own."""
        self.batches.append(build_batch([record], timestamp_ms=0, base_offset=self.end))


class MemoryCluster:
    """One cluster: topics by name, each with an id; what is deleted is gone, and made again under another id."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._ids = count(1)
        self.ids: dict[str, str] = {}
        self.logs: dict[str, list[Log]] = {}
        self.states: dict[str, StateLog] = {}
        self.makers: dict[str, str] = {}  # of each topic: the mirror, empty for a user
        self.heads = 0  # that mirrors have stored here, in all
        self._producers = count(1)

    def new_producer(self) -> int:
        """Return a producer id that nobody has in this cluster."""
        return next(self._producers)

    def log(self, topic: str, partition: int) -> Log:
        """Return one partition, which is made where the topic has fewer."""
        logs = self.logs[topic]
        logs += [Log() for _ in range(partition + 1 - len(logs))]
        return logs[partition]

    def make(self, topic: str, partitions: int, maker: str = "") -> None:
        """Make a topic."""
        self.ids[topic] = f"{self.name}-{next(self._ids)}"
        self.logs[topic] = [Log() for _ in range(partitions)]
        self.makers[topic] = maker

    def make_state(self, topic: str) -> None:
        """Make a state topic."""
        self.ids[topic] = f"{self.name}-{next(self._ids)}"
        self.states[topic] = StateLog()

    def delete(self, topic: str) -> None:
        """Delete a topic, or a state topic."""
        del self.ids[topic]
        self.logs.pop(topic, None)
        self.makers.pop(topic, None)
        self.states.pop(topic, None)

    def described(self) -> dict[str, Topic]:
        """Return all topics, as Metadata does."""
        sizes = {**{name: len(logs) for name, logs in self.logs.items()}, **dict.fromkeys(self.states, 1)}
        leader = Leader(1, 0)
        return {name: Topic(self.ids[name], 0, dict.fromkeys(range(size), leader)) for name, size in sizes.items()}


class SourceView:
    """A cluster as a mirror reads it, by the names of source_client.py."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.memory = cluster
        self.cluster: Any = self
        self.cluster_id: str | None = None

    async def topics(self, names: Sequence[str] | None = None) -> dict[str, Topic]:
        self.cluster_id = self.memory.name
        found = self.memory.described()
        return found if names is None else {name: found[name] for name in names if name in found}

    async def error_of(self, name: str) -> int:
        return 0 if name in self.memory.ids else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.memory.logs[tp.topic][tp.partition].end for tp in partitions}

    async def bounds(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        wanted = list(partitions)
        ends = {tp: self.memory.states[tp.topic].end for tp in wanted}
        return dict.fromkeys(wanted, 0), ends

    async def batch_at(self, partition: TopicPartition, offset: int) -> Piece | SkippedRange | None:
        found = self.memory.logs[partition.topic][partition.partition].from_offset(offset)
        return found[0].piece if found else None

    async def connection(self, _node: int, _number: int) -> SourceView:
        return self

    async def ask(self, _asked: object, request: FetchRequest, timeout_s: float) -> FetchResponse:
        """Answer a Fetch of state topics, a few batches of each."""
        answers = []
        for topic in request.topics:
            (asked,) = topic.partitions
            told = PartitionData(partition_index=0, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            log = self.memory.states.get(topic.topic)
            if log is not None and asked.fetch_offset > log.end:
                told = PartitionData(partition_index=0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
            elif log is not None:
                records = b"".join(log.batches[asked.fetch_offset :][:4])
                told = PartitionData(partition_index=0, error_code=0, high_watermark=log.end, records=records)
            answers.append(FetchableTopicResponse(topic=topic.topic, partitions=[told]))
        return FetchResponse(responses=answers)


class TargetView:
    """A cluster as a mirror writes to it, by the names of target_client.py; `is_away`: it does not answer."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.memory = cluster
        self.cluster_id: str | None = None
        self.is_away = False

    async def topics(self, names: Sequence[str] | None = None) -> dict[str, Topic]:
        if self.is_away:
            raise TargetError("it is away")
        self.cluster_id = self.memory.name
        found = self.memory.described()
        return found if names is None else {name: found[name] for name in names if name in found}


def heads(state: StateLog | None) -> Iterable[tuple[bytes | None, bytes | None]]:
    """Return the records of a state topic."""

    for batch in state.batches if state is not None else ():
        for piece in pieces_of(memoryview(batch), 0):
            if isinstance(piece, Piece):
                for record in records_of(piece.batch):
                    yield record.key, record.value
