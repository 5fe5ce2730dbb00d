"""Fetches below aiokafka's consumer: its own with leader epochs in and out, the raw batches of a log, one record.

Lives here: what the bytes and the error codes of fetches say. Must never come in: what is done about it.
Source: KIP-320, KIP-74 (the first batch of an answer is whole, however small the bound).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from struct import Struct
from types import MappingProxyType
from typing import Any, NamedTuple

from aiokafka import TopicPartition
from aiokafka.errors import LeaderNotAvailableError, OffsetOutOfRangeError, for_code
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.record.memory_records import MemoryRecords

from edge_broker.errors import ErrorCode
from edge_broker.protocol.record_batch import records_of
from kafka_wire.batches import ABORTED_KIND, CONTROL_KIND, Piece, Skipped, pieces_of
from mirror.epochs import EpochStart
from mirror.plan import BatchSpan

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
EPOCHS_FROM = 9  # the first version of Fetch with the leader epoch that the reader knows
FENCED_PAUSE_S = 0.1
NOT_THERE = OffsetOutOfRangeError.errno

_BATCH_FRONT = Struct(">qiib")  # base offset, size of what follows these two, leader epoch, magic
_SIZE_OVERHEAD = 12
_MAGIC_WITH_EPOCH = 2


class EpochTap:
    """Stands between an aiokafka consumer and its client.

    | fetch                                                | then                                                  |
    |------------------------------------------------------|-------------------------------------------------------|
    | asked                                                | carries the epoch that the position was judged under  |
    | answered FENCED_ or UNKNOWN_LEADER_EPOCH             | is in `fenced`, and the consumer does not see it      |
    | answered after the positions were set anew           | is dropped: the consumer asks again                   |
    | answered with batches                                | where an epoch begins is in `starts`, in order        |
    """

    def __init__(self, client: Any) -> None:
        self._send = client.send
        client.send = self.send
        self._leader_epochs: Mapping[TopicPartition, int] = MappingProxyType({})
        self.fenced: set[TopicPartition] = set()
        self.starts: list[tuple[TopicPartition, EpochStart]] = []

    def set(self, leader_epochs: Mapping[TopicPartition, int]) -> None:
        """Let fetches from now on carry these epochs, -1 for none; what is under way counts no more."""
        self._leader_epochs = MappingProxyType(dict(leader_epochs))
        self.fenced.clear()
        self.starts.clear()

    async def send(self, node: int, request: Any, **options: Any) -> Any:
        """Stand in for `AIOKafkaClient.send`."""
        if not isinstance(request, FetchRequest):
            return await self._send(node, request, **options)
        asked = self._leader_epochs
        answer = await self._send(node, _FetchWithEpochs(request, asked), **options)
        if asked is not self._leader_epochs:
            answer.topics = []
        fenced = len(self.fenced)
        answer.topics = [(topic, list(self._seen(topic, partitions))) for topic, partitions in answer.topics]
        if len(self.fenced) > fenced:
            await asyncio.sleep(FENCED_PAUSE_S)  # else the consumer asks again at once, and again
        return answer

    def _seen(self, topic: str, partitions: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        for answer in partitions:
            partition, code = TopicPartition(topic, answer[0]), answer[1]
            if code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH):
                self.fenced.add(partition)
                continue
            if not code and answer[-1]:
                self.starts += [(partition, start) for start in epoch_starts(answer[-1])]
            yield answer


class _FetchWithEpochs:
    """A fetch of aiokafka's, which always says -1, with leader epochs."""

    def __init__(self, request: FetchRequest, leader_epochs: Mapping[TopicPartition, int]) -> None:
        self._request, self._leader_epochs = request, leader_epochs

    def prepare(self, versions: dict[int, tuple[int, int]]) -> Any:
        struct: Any = self._request.prepare(versions)
        if struct.API_VERSION >= EPOCHS_FROM:
            struct.topics = [
                (topic, [(number, self._epoch(topic, number), *rest) for number, _, *rest in partitions])
                for topic, partitions in struct.topics
            ]
        return struct

    def _epoch(self, topic: str, number: int) -> int:
        return self._leader_epochs.get(TopicPartition(topic, number), -1)


def epoch_starts(batches: bytes) -> Iterator[EpochStart]:
    """Return the base offset of the first batch, and of each whose leader epoch is another than that before it."""
    position, last = 0, None
    while position + _BATCH_FRONT.size <= len(batches):
        base_offset, size, leader_epoch, magic = _BATCH_FRONT.unpack_from(batches, position)
        if magic >= _MAGIC_WITH_EPOCH and leader_epoch != last:
            last = leader_epoch
            yield EpochStart(base_offset, leader_epoch)
        position += _SIZE_OVERHEAD + size


class Content(NamedTuple):
    """What of a record is the same at both ends."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Fetched(NamedTuple):
    """One partition of a fetch's answer: its error code, aborted transactions and batches."""

    code: int
    aborted: Sequence[tuple[int, int]]
    batches: bytes


async def record_at(client: Any, partition: TopicPartition, offset: int) -> Content | None:
    """Return the record at an offset through an AIOKafkaClient, None when there is none; raises KafkaError."""
    return record_in(await _fetch(client, partition, offset, 1, READ_UNCOMMITTED), partition, offset)


def record_in(fetched: Fetched, partition: TopicPartition, offset: int) -> Content | None:
    """Return the record at an offset, None when there is none; raises KafkaError."""
    if fetched.code == NOT_THERE:
        return None
    if fetched.code:
        raise for_code(fetched.code)(f"{partition} at {offset}")
    records = MemoryRecords(fetched.batches)
    while records.has_next():
        batch = records.next_batch()
        for record in () if batch.is_control_batch else batch:
            if record.offset == offset:
                return Content(record.timestamp, record.key, record.value, tuple(record.headers))
    return None


def spans_in(fetched: Fetched, partition: TopicPartition, offset: int) -> list[BatchSpan]:
    """Return the batches from an offset on, by their raw attributes; raises KafkaError, BadBatch."""
    if fetched.code:
        raise for_code(fetched.code)(f"{partition} at {offset}")
    return [_span(one) for one in pieces_of(memoryview(fetched.batches), offset, fetched.aborted)]


def _span(one: Piece | Skipped) -> BatchSpan:
    if isinstance(one, Piece):
        held = tuple(record.offset for record in records_of(one.batch) if record.offset >= one.first_offset)
        return BatchSpan(one.first_offset, one.end_offset, "data", held)
    if one.kind == CONTROL_KIND:
        return BatchSpan(one.first_offset, one.end_offset, "control")
    return BatchSpan(one.first_offset, one.end_offset, "aborted" if one.kind == ABORTED_KIND else "data")


async def _fetch(client: Any, partition: TopicPartition, offset: int, bytes_max: int, isolation: int) -> Fetched:
    """Fetch once; the client must know the topic."""
    leader = client.cluster.leader_for_partition(partition)
    if leader in (None, -1):
        await client.force_metadata_update()
        raise LeaderNotAvailableError(f"{partition} has no leader")
    asked = [(partition.topic, [(partition.partition, offset, bytes_max)])]
    answer = await client.send(leader, FetchRequest(0, 1, bytes_max, isolation, asked))
    _, code, *rest = answer.topics[0][1][0]
    aborted = next((field for field in rest[:-1] if isinstance(field, list)), [])
    return Fetched(code, aborted, rest[-1])
