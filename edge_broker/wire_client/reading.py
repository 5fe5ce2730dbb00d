"""Records read from partitions: fetches of bounded size, batches unpacked one at a time, each record from its offset.

A batch that an answer cuts off is fetched again from its start; offsets that compaction took are passed over; control
batches (transaction markers) are no records. Records of transactions that are open or aborted are read, too.

Contains: positions, and what to do about each error code of a fetch. Does not contain: text for people, the order
of partitions. Every function raises WireFailure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from edge_broker.errors import ErrorCode, ProtocolViolation, Refusal, error_name
from edge_broker.protocol.crc import crc32c
from edge_broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from edge_broker.protocol.record_batch import CHECKED_POSITION, BatchHeader, Record, read_header, records_of
from edge_broker.wire_client import apis
from edge_broker.wire_client.cluster import EARLIEST, Cluster
from edge_broker.wire_client.connection import WireFailure

PARTITION_BYTES = 256 * 1024
PARTITION_BYTES_MAX = 64 * 1024 * 1024  # hard bound: a batch that is larger is not read
ANSWER_BYTES = 4 * 1024 * 1024
EMPTY_ANSWERS_MAX = 3  # before the end: then what is left there holds no record
WAIT_MS = 500
MOVED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.REPLICA_NOT_AVAILABLE,
)


class Remark(NamedTuple):
    """A note of a reader that is no record; `is_failure`: a record exists and could not be read."""

    partition: int
    text: str
    is_failure: bool


class Read(NamedTuple):
    """A record and its partition."""

    partition: int
    record: Record


class Position:
    """Where reading stands in one partition; `end` is where it stops, None for never."""

    __slots__ = ("empty", "end", "leader", "max_bytes", "number", "offset")

    def __init__(self, number: int, leader: int, offset: int, end: int | None) -> None:
        self.number = number
        self.leader = leader
        self.offset = offset
        self.end = end
        self.max_bytes = PARTITION_BYTES
        self.empty = 0

    @property
    def is_done(self) -> bool:
        """Whether nothing more is wanted."""
        return self.end is not None and self.offset >= self.end

    def stop(self) -> None:
        """Want nothing more."""
        self.end = self.offset


class Reader:
    """Reads some partitions of one topic; `moved` is set when a leader has to be looked up again."""

    def __init__(self, cluster: Cluster, topic: str, positions: Iterable[Position]) -> None:
        self.cluster = cluster
        self.topic = topic
        self.positions = {position.number: position for position in positions}
        self.moved = False
        self._rounds = 0

    @property
    def is_done(self) -> bool:
        """Whether every partition is read to its end."""
        return all(position.is_done for position in self.positions.values())

    def round(self) -> Iterator[Read | Remark]:
        """One fetch from each broker that leads some of the partitions: what it brought."""
        waiting = [position for position in self.positions.values() if not position.is_done]
        first = self._rounds % max(1, len(waiting))  # the first of a request is served first: each in its turn
        waiting, self._rounds = waiting[first:] + waiting[:first], self._rounds + 1
        for leader in sorted({position.leader for position in waiting}):
            yield from self._fetch(leader, [position for position in waiting if position.leader == leader])

    def _fetch(self, leader: int, positions: list[Position]) -> Iterator[Read | Remark]:
        if leader not in self.cluster.nodes():
            self.moved = True
            return
        wanted = [
            FetchPartition(partition=one.number, fetch_offset=one.offset, partition_max_bytes=one.max_bytes)
            for one in positions
        ]
        request = FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=max(ANSWER_BYTES, *(one.max_bytes for one in positions)),
            topics=[FetchTopic(topic=self.topic, partitions=wanted)],
        )
        answer = self.cluster.at(leader).ask(apis.FETCH, request)
        if answer.error_code:
            raise WireFailure(f"broker {leader} does not let {self.topic} be read: {error_name(answer.error_code)}")
        served = [one for topic in answer.responses for one in topic.partitions]
        nothing = not any(one.records or one.error_code for one in served)
        for one in served:
            if one.partition_index in self.positions:
                yield from self._take(self.positions[one.partition_index], one, nothing)

    def _take(self, position: Position, data: PartitionData, nothing: bool) -> Iterator[Read | Remark]:
        if data.error_code:
            yield from self._error(position, data)
            return
        before = position.offset
        yield from self._batches(position, memoryview(data.records or b""))
        if position.offset > before:
            position.empty = 0
        elif nothing and position.end is not None and not position.is_done:
            position.empty += 1
            if position.empty == EMPTY_ANSWERS_MAX:
                yield Remark(position.number, f"offsets {position.offset} to {position.end - 1} are not sent", True)
                position.stop()

    def _error(self, position: Position, data: PartitionData) -> Iterator[Remark]:
        if data.error_code in MOVED:
            self.moved = True
            return
        if data.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise WireFailure(f"topic {self.topic!r} is no longer there")
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            yield self._begin_again(position)
            return
        yield Remark(position.number, f"cannot be read: {error_name(data.error_code)}", True)
        position.stop()

    def _begin_again(self, position: Position) -> Remark:
        """The next records are gone: go on at the log's start; Remark says so."""
        topic = self.cluster.topic(self.topic)
        start = self.cluster.offsets([topic], EARLIEST)[self.topic, position.number].offset
        before, position.offset = position.offset, start
        return Remark(position.number, f"offset {before} is not there any more; reading goes on at {start}", False)

    def _batches(self, position: Position, data: memoryview) -> Iterator[Read | Remark]:
        at = 0
        while at + CHECKED_POSITION <= len(data) and not position.is_done:
            try:
                header = read_header(data, at)
            except ProtocolViolation:
                if len(data) - at >= 61 or at == 0:
                    yield Remark(
                        position.number, f"offset {position.offset}: what is sent is no batch of version 2", True
                    )
                    position.stop()
                return
            if at + header.size > len(data):
                if at == 0:
                    yield from self._want_more(position, header)
                return
            yield from self._records(position, header, data[at : at + header.size])
            position.offset = max(position.offset, header.next_offset)
            position.max_bytes = PARTITION_BYTES
            at += header.size

    def _want_more(self, position: Position, header: BatchHeader) -> Iterator[Remark]:
        """The first batch alone is larger than what was asked for: ask for all of it, or leave it out."""
        if header.size <= PARTITION_BYTES_MAX and position.max_bytes < header.size:
            position.max_bytes = header.size
            return
        text = f"offsets {header.base_offset} to {header.last_offset}: a batch of {header.size} bytes is not read"
        yield Remark(position.number, text, True)
        position.offset = header.next_offset

    def _records(self, position: Position, header: BatchHeader, batch: memoryview) -> Iterator[Read | Remark]:
        if header.is_control or header.next_offset <= position.offset:
            return
        where = f"offsets {header.base_offset} to {header.last_offset}"
        if crc32c(batch[CHECKED_POSITION:]) != header.crc:
            yield Remark(position.number, f"{where}: the batch does not match its CRC", True)
            return
        try:
            for record in records_of(batch):
                if record.offset >= position.offset and (position.end is None or record.offset < position.end):
                    yield Read(position.number, record)
        except (Refusal, ProtocolViolation) as error:
            yield Remark(position.number, f"{where}: the batch cannot be unpacked: {error}", True)


def first_record(cluster: Cluster, topic: str, partition: int, leader: int, offset: int, end: int) -> Record | None:
    """The first record at or after an offset and before `end`, None where there is none that can be read."""
    position = Position(partition, leader, offset, end)
    position.max_bytes = 1  # one batch comes whole, and nothing more
    reader = Reader(cluster, topic, [position])
    while not reader.is_done and not reader.moved:
        for one in reader.round():
            if isinstance(one, Read):
                return one.record
    return None
