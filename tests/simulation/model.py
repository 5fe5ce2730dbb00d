"""What a broker's data directory must hold, as plain lists, and the questions asked of a store that was just started.

Invariants, for a start after any crash:
- nothing confirmed is missing: each log begins with every batch that a sync, roll or clean stop confirmed, except what
  retention was allowed to delete; after a kill without a power cut not even an unsynced batch is missing;
- whatever was answered before its sync and is gone is in the ledger, offset by offset, written down since the crash;
  a kill without a power cut writes nothing down;
- nothing shown is changed: a read gives the bytes that were written at that offset, or what compaction leaves of them;
- nothing is invented: what is kept beyond the confirmed end is what was written there, in order, whole;
- producers are known as the batches tell, leader epochs rise with every unclean start, producer ids and committed
  offsets hold, topics stay with their ids and configuration, deleted ones do not come back;
- the start never needs a hand: no partition is offline, nothing was put aside.

Lives here: the model and these checks. Must never come in: what is done to the store (program.py).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from edge_broker.clock import Reading
from edge_broker.protocol.record_batch import BatchHeader, read_header, records_of
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.log.removed_offsets import POLICY_CAUSES, RemovedRange
from edge_broker.storage.metadata.topic_record import id_text
from tests.simulation import compacted

Batches = tuple[
    tuple[int, int, int, int], ...
]  # (first sequence, last sequence, first offset, last offset), oldest first
OffsetsKey = tuple[str, str, int]

RETENTION_SLACK_MS = 2000  # batches carry timestamps up to this much older than their append


class Batch(NamedTuple):
    """A batch as it lies in the log, and when it was appended."""

    data: bytes
    at_ms: int
    header: BatchHeader

    @classmethod
    def of(cls, data: bytes, at_ms: int) -> Batch:
        """Read its header."""
        return cls(data, at_ms, read_header(data))


class Entry(NamedTuple):
    """A record of the ledger; `end_offset` None: unknown."""

    cause: str
    topic_id: str
    partition: int
    first_offset: int
    end_offset: int | None

    def is_of(self, topic_id: uuid.UUID, partition: int) -> bool:
        """True for a loss of this partition."""
        return (self.topic_id, self.partition) == (id_text(topic_id), partition)

    def is_of_log(self, log: PartitionLog) -> bool:
        """True for a loss of this log."""
        return (self.topic_id, self.partition) == (log.topic_id, log.partition)


def ledger_entries(batches: Iterable[bytes]) -> list[Entry]:
    """What the ledger says, from its batches."""
    entries = []
    for batch in batches:
        for record in records_of(memoryview(batch)):
            fields = json.loads(record.value or b"")
            last = fields["last_offset"]
            topic_id = fields["id"].split(":")[4]
            entries.append(
                Entry(
                    fields["cause"],
                    topic_id,
                    fields["partition"],
                    fields["first_offset"],
                    None if last is None else last + 1,
                )
            )
    return entries


class Partition:
    """One partition as it must be; offsets are Kafka offsets."""

    def __init__(self, config: dict[str, str]) -> None:
        self.config = config
        self.kernel = config.get("flush.ms") == "9223372036854775807"
        self.compact = "compact" in config.get("cleanup.policy", "delete")
        self.names_groups = "edge.required.groups" in config
        self.retention_ms = int(config.get("retention.ms", "-1"))
        self.retention_bytes = int(config.get("retention.bytes", "-1"))
        self.batches: list[Batch] = []
        self.confirmed = 0  # end offset that no power cut may take back
        self.answered = 0  # end offset up to which acks=1 was answered
        self.start = 0
        self.removing = False
        self.attempt: memoryview | None = None  # what is being written just now
        self.refused: list[memoryview] = []  # what was not taken since the last confirmation
        self.sync_failed = self.write_failed = False
        self.marked_failed = False  # it came back, and the marks on the disk may still call it `failed`
        self.epoch = -1
        self.lossy = False  # something was done that may cost confirmed records
        self.flipped: set[int] = set()  # offsets of batches that have a wrong bit
        self.passed = 0  # what every group that the topic names has read, at most

    def copy(self) -> Partition:
        """The same, to be changed on its own."""
        other = Partition(self.config)
        other.batches = list(self.batches)
        other.confirmed, other.start, other.removing = self.confirmed, self.start, self.removing
        other.answered = self.answered
        other.attempt = None if self.attempt is None else memoryview(bytes(self.attempt))
        other.refused = list(self.refused)
        other.sync_failed, other.epoch, other.write_failed = self.sync_failed, self.epoch, self.write_failed
        other.marked_failed = self.marked_failed
        other.lossy, other.passed, other.flipped = self.lossy, self.passed, set(self.flipped)
        return other

    @property
    def end(self) -> int:
        """Offset behind the last batch written."""
        return self.batches[-1].header.next_offset if self.batches else 0

    @property
    def shown(self) -> list[Batch]:
        """What a consumer sees now: from the start up to the high watermark."""
        end = self.end if self.kernel else self.confirmed
        return [batch for batch in self.batches if self.start < batch.header.next_offset <= end]

    def confirm(self, end: int) -> None:
        """The disk has everything up to here, and nothing else."""
        self.confirmed = max(self.confirmed, end)
        self.attempt = None
        self.refused.clear()

    def producers(self) -> dict[int, tuple[int, Batches]]:
        """Epoch and last five batches of each producer, as all batches ever written tell."""
        known: dict[int, tuple[int, Batches]] = {}
        for _, _, header in self.batches:
            if header.producer_id >= 0 and not header.is_control:
                epoch, written = known.get(header.producer_id, (header.producer_epoch, ()))
                if epoch != header.producer_epoch:
                    written = ()
                last = header.base_sequence + header.last_offset_delta
                entry = (header.base_sequence, last, header.base_offset, header.last_offset)
                known[header.producer_id] = (header.producer_epoch, (*written, entry)[-5:])
        return known

    # checks

    def check_started(self, log: PartitionLog, found: Sequence[bytes], now_ms: int, *, may_forget: bool) -> None:
        """A log that was just opened, and all it shows, against this; afterwards this is what is there."""
        assert log.fault is None, f"{log!r} needs a hand: {log.fault}"
        assert log.high_watermark == log.log_end_offset, f"{log!r} was started and shows only {log.high_watermark}"
        self.check_start(log)
        written = self._written(found, now_ms)
        needed = self.confirmed if may_forget or self.sync_failed else self.end
        assert log.log_end_offset >= needed, f"{log!r}: what was confirmed up to {needed} is missing"
        self.batches = [batch for batch in written if batch.header.next_offset <= log.log_end_offset]
        self.confirmed, self.start = log.log_end_offset, log.log_start_offset
        self.removing, self.attempt, self.sync_failed, self.marked_failed = False, None, False, False
        self.write_failed = False
        self.refused.clear()
        assert log.log_end_offset == max(self.end, self.start), f"{log!r} ends where no batch ends"
        self.check_shown(log, found, now_ms)
        self._check_producers(log)
        self._check_epochs(log)

    def check_lost(self, log: PartitionLog, told: Sequence[Entry], *, may_forget: bool) -> None:
        """What was answered and is gone is covered by what the ledger was told since the last start."""
        cuts = [entry for entry in told if entry.cause == "unsynced_cut"]
        lost = log.log_end_offset, self.answered
        if not (self.kernel or self.sync_failed):
            assert covers(cuts, *lost), f"{log!r}: up to {lost[1]} was answered; the ledger was told of {cuts}"
        excused = may_forget or self.sync_failed or self.write_failed or self.marked_failed or self.refused
        assert excused or not cuts, f"{log!r} lost nothing by a kill: {cuts}"
        self.answered = min(lost)

    def check_shown(self, log: PartitionLog, found: Sequence[bytes], now_ms: int) -> None:
        """All that a log shows against this: the same batches, or after compaction the same records."""
        shown = self.shown
        if self.compact:
            written = [(batch.data, batch.at_ms) for batch in shown]
            compacted.check(written, found, int(self.config["delete.retention.ms"]), now_ms)
            return
        shown = [batch for batch in shown if batch.header.base_offset not in self.flipped]
        for batch, data in zip(shown, found, strict=False):
            assert batch.data == data, f"{log!r} has other bytes at offset {batch.header.base_offset} than were written"
        assert len(shown) == len(found), f"{log!r} shows {len(found)} batches of {len(shown)}"

    def back(self, log: PartitionLog) -> None:
        """A failed sync or write is over: what was not confirmed is gone, unless the kernel had it on the disk."""
        assert log.fault is None
        assert log.log_start_offset == self.start
        end = log.log_end_offset
        assert end == self.confirmed or (self.kernel and self.confirmed <= end <= self.end), (
            f"{log!r} once it is online"
        )
        self.batches = [batch for batch in self.batches if batch.header.next_offset <= end]
        self.confirmed, self.attempt, self.sync_failed, self.marked_failed = end, None, False, True
        self.write_failed = False
        self.answered = min(self.answered, end)
        self.refused.clear()
        assert log.high_watermark == end == max(self.end, self.start)
        self._check_producers(log)
        self._check_epochs(log)

    def check_account(self, log: PartitionLog, losses: Sequence[Entry], now_ms: int) -> None:
        """What is not there any more is accounted for, and only a cause for a loss makes a loss."""
        at = 0
        for entry in log.removed:
            assert entry.first_offset == at, f"{log!r}: the account leaves offset {at} out: {log.removed}"
            assert entry.records + entry.control + entry.compacted == entry.end_offset - entry.first_offset, entry
            at = entry.end_offset
            self._check_cause(log, entry, losses, now_ms)
        assert at == self.start, f"{log!r} starts at {self.start}, its account ends at {at}"
        for offset in self.flipped:
            damaged = [loss for loss in losses if loss.cause == "damaged"]
            assert offset < self.start or covers(damaged, offset, offset + 1), f"{log!r}: {offset} is not in the ledger"
        lost = [loss for loss in losses if loss.cause not in ("unsynced_cut", "sync_failed")]
        assert self.lossy or not lost, f"{log!r} lost what nothing took: {lost}"
        damaged = [loss for loss in losses if loss.cause == "damaged"]
        assert self.flipped or not damaged, f"{log!r} has damage that nothing did: {damaged}"

    def _check_cause(self, log: PartitionLog, entry: RemovedRange, losses: Sequence[Entry], now_ms: int) -> None:
        """What went had to go, and a loss is in the ledger."""
        if entry.cause not in POLICY_CAUSES:
            covered = [loss for loss in losses if loss.cause == entry.cause]
            assert covers(covered, entry.first_offset, entry.end_offset), f"{log!r}: {entry} is not in the ledger"
        if entry.cause == "passed":
            assert entry.end_offset <= self.passed, f"{log!r}: {entry} is more than {self.passed}, which was passed"
        if entry.cause in ("retention", "expired_unpassed") and self.retention_bytes < 0:
            for batch in self.batches:
                if entry.first_offset <= batch.header.base_offset < entry.end_offset:
                    age_ms = now_ms - batch.at_ms + RETENTION_SLACK_MS
                    assert 0 <= self.retention_ms < age_ms, f"{log!r}: {entry} took what is {age_ms} ms old"

    def _written(self, found: Sequence[bytes], now_ms: int) -> list[Batch]:
        """Every batch that may be there: those written, and the one that a crash interrupted.

        A batch that was refused may be in the place of later ones: the kernel may have written its page back before it
        was cut off again, and nothing was confirmed since.
        """
        last = bytes(found[-1]) if found else b""
        for refused in self.refused:
            batches = list(_batches_of(refused, now_ms))
            if last in [batch.data for batch in batches]:
                base_offset = batches[0].header.base_offset
                return [*(one for one in self.batches if one.header.base_offset < base_offset), *batches]
        interrupted = list(_batches_of(self.attempt, now_ms)) if self.attempt is not None else []
        fits = bool(interrupted) and interrupted[0].header.base_offset == self.end
        return [*self.batches, *(interrupted if fits else ())]

    def check_start(self, log: PartitionLog) -> None:
        """The log begins where it did, or further on while a removal is under way or was interrupted."""
        start = log.log_start_offset
        assert start == self.start or self.removing, f"{log!r} began at {self.start} before"
        assert self.start <= start <= (self.end if self.kernel else self.confirmed), (
            f"{log!r} began at {self.start} before, {self.confirmed} was shown"
        )

    def removed(self, log: PartitionLog, losses: Sequence[Entry], now_ms: int) -> None:
        """A removal is over."""
        self.check_start(log)
        self.start, self.removing = log.log_start_offset, False
        self.check_account(log, losses, now_ms)

    def _check_producers(self, log: PartitionLog) -> None:
        """All producers whose batches are there, and of those alone; what retention took may be known still."""
        if self.flipped:
            return
        known = {key: (one.epoch, tuple(map(tuple, one.batches))) for key, one in log.writer.producers.by_id().items()}
        expected = self.producers()
        assert set(known) <= set(expected), f"{log!r} knows producers that never wrote: {set(known) - set(expected)}"
        for producer, (epoch, written) in expected.items():
            still = tuple(entry for entry in written if entry[2] >= self.start)
            got = known.get(producer)
            if got is None:
                assert not still, f"{log!r} forgot producer {producer}"
                continue
            assert got[0] == epoch, f"{log!r}: producer {producer} has epoch {got[0]}, wrote with {epoch}"
            assert got[1][-1] == written[-1], f"{log!r}: producer {producer} is known by {got[1]}, wrote {written}"
            if self.compact:
                assert set(got[1]) <= set(written)
                continue
            assert got[1] == written[len(written) - len(got[1]) :], f"{log!r}: producer {producer} is known by {got[1]}"
            assert len(got[1]) >= len(still), f"{log!r}: producer {producer} wrote {still}, known is {got[1]}"

    def _check_epochs(self, log: PartitionLog) -> None:
        if self.flipped:
            return
        starts: dict[int, int] = {}
        for batch in self.batches:
            if batch.header.next_offset > self.start:
                starts.setdefault(batch.header.leader_epoch, batch.header.base_offset)
        assert list(starts) == sorted(starts), f"{log!r}: epochs {list(starts)}"
        assert log.leader_epoch >= self.epoch, f"{log!r}: epoch {log.leader_epoch} after {self.epoch}"
        self.epoch = log.leader_epoch
        assert log.reader.epoch_end(log.leader_epoch) == (log.leader_epoch, log.log_end_offset)
        for epoch in range(min(starts, default=log.leader_epoch), log.leader_epoch):
            found = max(known for known in starts if known <= epoch)
            end = next((start for known, start in starts.items() if known > epoch), log.log_end_offset)
            told = log.reader.epoch_end(epoch)  # an epoch may have begun and have no batch
            assert (found <= told[0] <= epoch, told[1]) == (True, end), f"{log!r}: end of epoch {epoch} is {told}"


def _batches_of(records: memoryview, now_ms: int) -> Iterator[Batch]:
    """The batches of one append, as far as they have their offsets."""
    end = read_header(records).base_offset
    while records and read_header(records).base_offset == end:
        header = read_header(records)
        yield Batch.of(bytes(records[: header.size]), now_ms)
        records, end = records[header.size :], header.next_offset


def covers(losses: Iterable[Entry], first_offset: int, end_offset: int) -> bool:
    """True when losses leave no offset out."""
    for loss in sorted(losses, key=lambda loss: loss.first_offset):
        if loss.first_offset <= first_offset < (end_offset if loss.end_offset is None else loss.end_offset):
            first_offset = end_offset if loss.end_offset is None else loss.end_offset
    return first_offset >= end_offset


class TopicModel:
    """One topic as it must be."""

    def __init__(self, topic_id: uuid.UUID, config: dict[str, str], partitions: list[Partition]) -> None:
        self.topic_id = topic_id
        self.config = config
        self.partitions = partitions

    @classmethod
    def of(cls, topic_id: uuid.UUID, config: dict[str, str], partitions: int) -> TopicModel:
        """An empty topic."""
        return cls(topic_id, config, [Partition(config) for _ in range(partitions)])

    def copy(self) -> TopicModel:
        """The same, to be changed on its own."""
        return TopicModel(self.topic_id, self.config, [partition.copy() for partition in self.partitions])


class CommittedOffsets:
    """What each group committed: the value that was acknowledged, and those on their way since, in order."""

    def __init__(self, values: dict[OffsetsKey, list[int | None]] | None = None) -> None:
        self.values = values or {}

    def copy(self) -> CommittedOffsets:
        """The same, to be changed on its own."""
        return CommittedOffsets({key: list(values) for key, values in self.values.items()})

    def attempt(self, key: OffsetsKey, value: int) -> None:
        """A commit is on its way."""
        self.values.setdefault(key, [None]).append(value)

    def acknowledge(self, key: OffsetsKey, value: int) -> None:
        """A commit was answered: no older value may come back."""
        values = self.values[key]
        del values[: values.index(value)]

    def check(self, found: Iterable[tuple[OffsetsKey, int]]) -> None:
        """What a start has found; afterwards this is what holds."""
        there = dict(found)
        assert set(there) <= set(self.values), f"offsets of {set(there) - set(self.values)} were never committed"
        for key, values in self.values.items():
            assert there.get(key) in values, f"{key} is at {there.get(key)}, acknowledged was {values[0]}"
            self.values[key] = [there.get(key)]


class World:
    """Everything that must hold if the power goes now."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.topics: dict[str, TopicModel] = {}
        self.doubtful: str | None = None  # a topic that is being made or deleted
        self.previous: tuple[TopicModel, ...] = ()  # of that name, where their deletion or making failed before
        self.offsets = CommittedOffsets()
        self.producer_ids_end = 0
        self.cluster_id = ""
        self.epoch = -1
        self.stop = "none"  # `begun` and `done` are stages of a clean stop
        self.may_forget = False  # the power was gone, or a sync failed
        self.ledgered = 0  # records in the ledger at the last start
        self.faulted = False  # a start met a fault: what it could not read it may have put aside
        self.boots = 0
        self.booted_ms = now_ms

    @property
    def reading(self) -> Reading:
        """What the clocks say; every third boot never learns the right time."""
        return Reading(f"boot-{self.boots}", self.now_ms - self.booted_ms, self.now_ms, trusted=self.boots % 3 != 2)

    def boot(self) -> None:
        """The power is back."""
        self.may_forget = True
        self.boots += 1
        self.now_ms += 1000
        self.booted_ms = self.now_ms

    def copy(self) -> World:
        """The same, to be changed on its own."""
        other = World(self.now_ms)
        other.topics = {name: topic.copy() for name, topic in self.topics.items()}
        other.doubtful, other.offsets = self.doubtful, self.offsets.copy()
        other.previous = tuple(topic.copy() for topic in self.previous)
        other.producer_ids_end, other.cluster_id, other.epoch = self.producer_ids_end, self.cluster_id, self.epoch
        other.stop, other.may_forget, other.ledgered = self.stop, self.may_forget, self.ledgered
        other.faulted, other.boots, other.booted_ms = self.faulted, self.boots, self.booted_ms
        return other
