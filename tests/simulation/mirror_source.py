"""A source in memory for the mirror's simulation: partitions with gaps, leader epochs, aborted data, cuts, deletions.

Every record has a serial of its partition that no other record ever has; it is in its value. What became of each is
remembered, for the audit. Must never come in: what is done when (mirror_runs.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from edge_broker.errors import ErrorCode
from edge_broker.protocol.crc import crc32c
from edge_broker.protocol.record_batch import CONTROL, TRANSACTIONAL, Record, build_batch, records_of
from kafka_wire.cluster import Leader, Topic
from kafka_wire.partitions import TopicPartition
from mirror.client.active_election import Member
from mirror.client.fetcher import Answer, Place
from mirror.client.log_queries import Content, Contents, EpochQuestion
from mirror.errors import NotOurTurnError, SourceError
from mirror.partition.leader_epochs import EpochEnd
from mirror.partition.source_offsets import Commit

if TYPE_CHECKING:
    from tests.simulation.mirror_world import Life, World

Offsets = dict[TopicPartition, int]

BATCHES_MAX = 7  # of a partition in an answer
SERIAL_DIGITS = 8
TRANSACTION_PRODUCER = 9


def serial_of(value: bytes) -> int:
    """Which record it is, of those of its partition; -1 of somebody else's."""
    return int(value[:SERIAL_DIGITS]) if value[:1] != b"f" else -1


def content(one: Record) -> Content:
    """What of it is the same at both ends."""
    return Content(one.timestamp, one.key, one.value, tuple(one.headers))


@dataclass
class Fate:
    """Of one record: where it was, and why it is not there any more."""

    offset: int
    log: str  # the topic's id by then
    is_bad: bool = False  # the target takes no such record
    is_aborted: bool = False
    gone: str = ""


@dataclass
class SourceBatch:
    """One of a log: [base, end), its bytes, the serials of its records."""

    base: int
    end: int
    data: bytes
    serials: list[int]
    aborted: bool = False


class SourceLog:
    """One partition; `told_start` is the lowest start of this log that the mirror was told."""

    def __init__(self, partition: TopicPartition, policy: str, chance: Random) -> None:
        self.partition, self.policy, self._chance = partition, policy, chance
        self.fates: dict[int, Fate] = {}
        self.log_number = 0
        self._begin()

    def _begin(self) -> None:
        self.log_number += 1
        self.topic_id = f"{self.partition.topic}{self.log_number}"
        self.start = self.end = 0
        self.epochs = [(0, 1)]
        self.batches: list[SourceBatch] = []
        self.gaps: list[tuple[int, int]] = []
        self.told_start: int | None = None

    @property
    def epoch(self) -> int:
        """The leader's."""
        return self.epochs[-1][1]

    def append(self, records: int, timestamp_ms: int, *, bad: float = 0.0, kind: str = "data") -> None:
        """Take a batch of so many records; or data and a marker, `aborted`."""
        serials, values = [], []
        for number in range(records):
            serial = len(self.fates)
            is_bad = kind == "data" and self._chance.random() < bad
            self.fates[serial] = Fate(self.end + number, self.topic_id, is_bad, kind == "aborted")
            serials.append(serial)
            flag = b"bad" if is_bad else b""
            values.append((b"k", b"%0*d" % (SERIAL_DIGITS, serial) + flag + b"." * self._chance.randrange(60)))
        data = build_batch(values, timestamp_ms=timestamp_ms, base_offset=self.end, leader_epoch=self.epoch)
        aborted = kind == "aborted"
        self._put(
            SourceBatch(self.end, self.end + records, of_transaction(data) if aborted else data, serials, aborted)
        )
        if aborted:
            marker = build_batch(
                [(b"\0\0\0\0", b"")], timestamp_ms=timestamp_ms, base_offset=self.end, leader_epoch=self.epoch
            )
            self._put(SourceBatch(self.end, self.end + 1, of_transaction(marker, CONTROL), []))

    def _put(self, batch: SourceBatch) -> None:
        self.batches.append(batch)
        self.end = batch.end

    def skip(self, offsets: int) -> None:
        """Leave offsets out: they are missing where the topic does not compact."""
        if self.policy == "delete":
            self.gaps.append((self.end, self.end + offsets))
        self.end += offsets

    def lead_anew(self) -> None:
        """Have another leader, who has all."""
        epoch = self.epoch + 1
        self.epochs = [one for one in self.epochs if one[0] < self.end] + [(self.end, epoch)]

    def cut(self, batches: int) -> None:
        """Lose the last batches; another leads from there on."""
        kept = max(0, len(self.batches) - batches)
        lost, self.batches = self.batches[kept:], self.batches[:kept]
        if not lost:
            return
        epoch = self.epoch + 1
        self.end = self.batches[-1].end if self.batches else self.start
        self.epochs = [one for one in self.epochs if one[0] < self.end] + [(self.end, epoch)]
        self.gaps = [gap for gap in self.gaps if gap[1] < self.end]
        self._gone(lost, "cut")

    def delete_head(self, batches: int) -> None:
        """Delete the first batches."""
        lost, self.batches = self.batches[:batches], self.batches[batches:]
        if lost:
            self.start = self.batches[0].base if self.batches else self.end
            self._gone(lost, "deleted")

    def compact(self) -> None:
        """Take a batch out of a log that compacts."""
        if self.policy == "compact" and len(self.batches) > 2:
            lost = self.batches.pop(self._chance.randrange(len(self.batches) - 1))
            if lost.serials:
                self._gone([lost], "compacted")
            else:
                self.batches.append(lost)
                self.batches.sort(key=lambda one: one.base)

    def make_anew(self) -> None:
        """Be another topic of the same name."""
        self._gone(self.batches, "anew")
        self._begin()

    def _gone(self, batches: list[SourceBatch], why: str) -> None:
        for batch in batches:
            for serial in batch.serials:
                self.fates[serial].gone = why

    @property
    def aborted(self) -> list[tuple[int, int]]:
        """As Fetch tells it."""
        return [(TRANSACTION_PRODUCER, one.base) for one in self.batches if one.aborted]

    def from_offset(self, offset: int) -> list[SourceBatch]:
        """Some batches from there on."""
        return [one for one in self.batches if one.end > offset][:BATCHES_MAX]


def of_transaction(batch: bytes, attributes: int = 0) -> bytes:
    """The same as part of one."""
    made = bytearray(batch)
    made[21:23] = (TRANSACTIONAL | attributes).to_bytes(2, "big")
    made[43:51] = TRANSACTION_PRODUCER.to_bytes(8, "big")
    made[17:21] = crc32c(made[21:]).to_bytes(4, "big")
    return bytes(made)


class SourceEnd:
    """What one life of the mirror has of the source."""

    silent_s = 0.0
    cluster_id = "source-cluster"
    busy: frozenset[TopicPartition] = frozenset()
    cluster = None

    def __init__(self, world: World, life: Life) -> None:
        self._world, self._life, self.reader = world, life, self

    async def close(self) -> None: ...

    async def topics(self, names: Sequence[str] | None = None) -> dict[str, Topic]:
        async with self._world.call(self._life, SourceError):
            found: dict[str, Topic] = {}
            for partition, log in self._world.logs.items():
                topic = found.setdefault(partition.topic, Topic(log.topic_id, 0, {}))
                topic.leaders[partition.partition] = Leader(1, log.epoch)
            return found

    async def settings(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        async with self._world.call(self._life, SourceError):
            policies = {partition.topic: log.policy for partition, log in self._world.logs.items()}
            return {name: {"cleanup.policy": policies[name]} for name in names}

    async def error_of(self, name: str) -> int:
        """Every topic may be described, and this one is not there."""
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def bounds(self, partitions: Iterable[TopicPartition]) -> tuple[Offsets, Offsets]:
        async with self._world.call(self._life, SourceError):
            logs = {partition: self._world.logs[partition] for partition in partitions}
            for partition, log in logs.items():
                if log.told_start is None or not self._world.is_begun(partition):
                    log.told_start = log.start
            return {tp: log.start for tp, log in logs.items()}, {tp: log.end for tp, log in logs.items()}

    async def known_bounds(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[Offsets, Offsets, dict[TopicPartition, str]]:
        return *await self.bounds(partitions), {}

    async def known_settings(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        return await self.settings(names)

    async def ends(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Tell at once: kept seeds mean what they did."""
        return {partition: self._world.logs[partition].end for partition in partitions}

    async def commits(self, partitions: Collection[TopicPartition] | None = None) -> dict[TopicPartition, Commit]:
        async with self._world.call(self._life, SourceError):
            return {tp: commit for tp, commit in self._world.group.items() if partitions is None or tp in partitions}

    async def commit(self, commits: Mapping[TopicPartition, Commit], timeout_s: float, member: Member) -> None:
        async with self._world.call(self._life, SourceError):
            if not self._life.writes:
                raise NotOurTurnError("it is another's turn")
            self._world.group.update(commits)
            self._world.told(commits)

    async def epoch_ends(self, asked: Mapping[TopicPartition, EpochQuestion]) -> dict[TopicPartition, EpochEnd | str]:
        async with self._world.call(self._life, SourceError):
            return {partition: self._epoch_end(partition, *question) for partition, question in asked.items()}

    def _epoch_end(self, partition: TopicPartition, epoch: int, leader: Leader) -> EpochEnd | str:
        log = self._world.logs[partition]
        if leader.epoch != log.epoch:
            return "it has another leader epoch"
        if epoch > log.epoch:
            return EpochEnd(-1, -1)
        known = [one[1] for one in log.epochs if one[1] <= epoch]
        ends = [one[0] for one in log.epochs if one[1] > epoch]
        return EpochEnd(known[-1] if known else epoch, ends[0] if ends else log.end)

    async def record_at(self, partition: TopicPartition, offset: int) -> Content | None:
        found = await self.contents_from(partition, offset)
        return next((one for at, one in found.records if at == offset), None) if found else None

    async def contents_from(self, partition: TopicPartition, offset: int) -> Contents | None:
        async with self._world.call(self._life, SourceError):
            batch = next((one for one in self._world.logs[partition].batches if one.end > offset), None)
            if batch is None:
                return None
            records = [] if batch.aborted or not batch.serials else records_of(batch.data)
            return Contents([(one.offset, content(one)) for one in records if one.offset >= offset], batch.end)

    async def poll(
        self, wanted: Mapping[TopicPartition, Place], room_bytes: int, wait_s: float, woken: asyncio.Event
    ) -> list[Answer]:
        """Answer as a leader does: by its epoch, its bounds, and from the offset on that is asked for."""
        world = self._world
        await world.reaches(self._life)
        if world.faults() and world.chance.random() < world.fault_rate / 4:
            return [Answer(tp, place, failed="away") for tp, place in wanted.items()]
        answers = [answer for tp, place in wanted.items() if (answer := self._answer(tp, place)) is not None]
        if not answers:
            try:
                async with asyncio.timeout(min(wait_s, 0.2)):
                    await woken.wait()
            except TimeoutError:
                return []
        return answers

    def _answer(self, partition: TopicPartition, place: Place) -> Answer | None:
        log = self._world.logs[partition]
        if place.topic_id != log.topic_id:
            return Answer(partition, place, ErrorCode.UNKNOWN_TOPIC_ID)
        if place.leader_epoch not in (-1, log.epoch):
            return Answer(partition, place, ErrorCode.FENCED_LEADER_EPOCH)
        if not log.start <= place.offset <= log.end:
            return Answer(partition, place, ErrorCode.OFFSET_OUT_OF_RANGE)
        found = log.from_offset(place.offset)
        if not found:
            return None
        data = memoryview(b"".join(one.data for one in found))
        return Answer(partition, place, 0, log.aborted, data, log.end)
