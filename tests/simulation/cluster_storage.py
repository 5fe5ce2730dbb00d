"""Cards of boards in a simulated cluster, with the broker's own storage on them: stores, logs, the ledger, state files.

Each card is a disk in memory that tears pages, and loses names, where the power goes; now and then it goes amid an act.
What is kept beside a log, `records`, is read back from its bytes whenever it is opened or truncated.

Must never come in: what is decided, faults that are not a disk's.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from struct import Struct
from typing import NamedTuple, TypeVar

from edge_broker.broker.state.disk_space import ALWAYS_WRITTEN
from edge_broker.cluster.effects import Cause, LostRange
from edge_broker.cluster.state.cluster_state import PartitionId
from edge_broker.configuration.settings import LogSettings
from edge_broker.errors import StorageFault
from edge_broker.protocol.record_batch import HEADER_SIZE, BatchHeader, build_batch, read_header, records_of
from edge_broker.storage.files.data_age import Now
from edge_broker.storage.log.group_commit import Flush
from edge_broker.storage.log.leader_epochs import LeaderEpochs
from edge_broker.storage.log.log_reader import whole_batches
from edge_broker.storage.log.log_writer import RollDue
from edge_broker.storage.log.log_writer import Writing as FileWriting
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.loss.quarantine import quarantine
from edge_broker.storage.metadata.kept_states import KeptStates, read_kept_states, write_kept_states
from edge_broker.storage.metadata.topic_record import id_of, id_text, split_partition_directory
from edge_broker.storage.replica import replica_truncation
from edge_broker.storage.replica.missing_ranges import record_missing
from edge_broker.storage.replica.reopen_replica import reopen
from edge_broker.storage.replica.replica_log import Replica, begins_before
from edge_broker.storage.replica.replica_truncation import (
    RecordedTruncation,
    cut_damage,
    enter,
    enter_unknown,
    resume_as,
    truncate,
)
from edge_broker.storage.replica.reset_to_leader_start import begin_amid, start_anew
from edge_broker.storage.replica.skip_lost_range import pass_over
from edge_broker.storage.retention.segment_removal import delete_records, follow_start
from edge_broker.storage.segment.segment import DamageFound, WouldBlockError
from edge_broker.testing.clock import NOW_MS, reading_at
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.thread_checks import running_in as at
from tests.simulation.cluster_disk import GONE, Entry, Record

SETTINGS = LogSettings(segment_bytes=2048, index_interval_bytes=128)
READING = reading_at(NOW_MS)
BATCH_BYTES = 90  # of one record, about
CUT_AMID = 0.002  # how often the power goes amid an act that writes
CUT_AMID_A_TRUNCATION = 0.3
CUT_AMID_A_DELETION = 0.3
STEPS_MAX = 40
STEPS_BEHIND = 5  # a truncation, before anything else was synced
CHECKPOINT = 0.05
PARTITIONS = 2
CLUSTER = "site"
SHOWN_AGAIN = 8
_LENGTH = Struct(">qi")  # base offset and length of a batch


T = TypeVar("T")


class Damaged(AssertionError):
    """The storage has done what it must not."""


class Writing:
    """A sync under way."""

    def __init__(self, flush: Flush | None) -> None:
        self.flush, self._ran = flush, False

    def run(self) -> None:
        """The disk has it, once."""
        if self.flush is not None and not self._ran:
            self._ran = True
            with at("disk"):
                self.flush.run()


class AppendUnderWay(NamedTuple):
    """What a follower is writing."""

    writing: FileWriting

    def run(self) -> None:
        """The kernel has it."""
        with at("writer"):
            self.writing.run()


class RealLog:
    """A partition on a card; as SimLog."""

    def __init__(self, disk: RealDisk, partition: PartitionId, log: PartitionLog) -> None:
        self.disk, self.partition, self.replica = disk, partition, Replica(log)
        self.syncing = self.refuses = False  # a card that has failed refuses until the next start
        self.works = 0  # under way, which a deletion waits for
        self.records = self._read()
        self.is_made_anew = False  # from nothing: a cut of power amid that may leave nothing of it
        self.cut: frozenset[Record] = frozenset()  # what was truncated, and was not fetched again since
        self._entered: RecordedTruncation | None = None
        self._looked = 0
        self._under_way = Writing(None)  # the last sync that began

    # as the cluster sees it

    @property
    def log_start_offset(self) -> int:
        return self.replica.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.replica.log_end_offset

    @property
    def synced_offset(self) -> int:
        return self.replica.synced_offset

    @property
    def acknowledged_offset(self) -> int:
        return self.replica.acknowledged_offset

    def may_lack(self, epoch: int) -> bool:
        return self.replica.may_lack(epoch)

    @property
    def epochs(self) -> LeaderEpochs:
        return self.replica.epochs

    @property
    def busy(self) -> bool:
        return self.replica.busy

    @property
    def full(self) -> bool:
        return self.replica.full

    @full.setter
    def full(self, full: bool) -> None:
        self.replica.full = full

    @property
    def online(self) -> bool:
        return self.replica.online

    @online.setter
    def online(self, _: bool) -> None:
        self.replica.log.fail(StorageFault(self.replica.log.directory, 0, "the card fails"))

    @property
    def missing(self) -> bool:
        return self.replica.missing

    @property
    def unconfirmed_epoch(self) -> int:
        return self.replica.unconfirmed_epoch

    def reopen(self, *, may_recreate: bool, kept_until: int) -> None:
        """Open what the disk has for certain, if it lets one."""
        log, replica = self.replica.log, self.replica
        if self.online or self.refuses:
            return
        self.disk.may_be_cut(CUT_AMID * 10)
        self.is_made_anew = self.is_made_anew or (may_recreate and self.missing)
        end = log.synced_end.offset
        work = partial(
            reopen,
            self.disk.store,
            log,
            self.disk.now,
            led_from=replica.led_from,
            may_recreate=may_recreate,
            kept_until=kept_until,
        )
        try:
            with at("files"):
                found = work()
        except StorageFault:
            if log.settings.sync_awaited or not log.may_come_online:
                raise
            return  # it stays as it is until the next start
        log.go_on_as(found.log)
        self._under_way = Writing(None)  # what was under way when it went offline has ended, and was of no use
        self.is_made_anew = False
        replica.led_from, left = None, self._without_lacks(self.records[:end])
        self.cut |= set(self.records[end:]) - {GONE}
        self.records = self._read()
        if self.records != left:
            raise Damaged(f"{log!r} was opened again, and has {self.records} for {left}")

    @property
    def has_missing(self) -> bool:
        return self.replica.has_missing

    def _batch_at(self, offset: int) -> BatchHeader:
        """Of the batch that holds an offset, which may be damaged behind its header."""
        segment = next(one for one in reversed(self.replica.log.segments) if one.base_offset <= offset)
        with at("reader"):
            position = segment.locate(offset, segment.size, blocking=True)
            return read_header(segment.read(HEADER_SIZE, position, blocking=True))

    def lost_with(self, offset: int) -> Sequence[Record]:
        """What goes where a byte of the record there changes: its batch."""
        header = self._batch_at(offset)
        return self.records[max(header.base_offset, self.log_start_offset) : header.next_offset]

    def rot(self, offset: int) -> None:
        """A byte of a record changes on the card, and a reader finds that."""
        log, disk = self.replica.log, self.disk.disk
        disk.crash_at = -1
        segment = next(one for one in reversed(log.segments) if one.base_offset <= offset)
        with at("files"):
            position = segment.locate(offset, segment.size, blocking=True)
            disk.flip(segment.path, position + HEADER_SIZE + 4)
            with suppress(StorageFault):
                quarantine(log, DamageFound(segment, position, "the card forgets"))
        if not self.has_missing:
            raise Damaged(f"{log!r} does not know that it lacks {offset}")

    def cut_damage(self) -> None:
        """End where the damage begins."""
        if not self.online:
            return
        self._entered, log = None, self.replica.log
        self.disk.may_be_cut(CUT_AMID_A_TRUNCATION)
        with at("files"):
            fresh = cut_damage(self.disk.store, log, self.disk.now)
        resume_as(log, fresh)
        left = self.records[: self.log_end_offset]
        self.cut |= set(self.records[self.log_end_offset :]) - {GONE}
        self.records = self._read()
        if self.records != left or self.has_missing:
            raise Damaged(f"{log!r} was cut where it was damaged, and has other records than before")
        self.disk.may_be_cut(CUT_AMID_A_TRUNCATION, STEPS_BEHIND)
        self.disk.checkpoint()

    def own_up(self) -> None:
        """Nobody has it."""
        self.disk.may_be_cut(CUT_AMID * 10)
        lost = [
            offset
            for _, one in self.replica.log.remaining_missing
            for offset in range(one.first_offset, one.end_offset)
        ]
        with at("files"):
            record_missing(self.replica.log)
        for offset in lost:
            self.records[offset] = GONE

    def lost_until(self, offset: int) -> int:
        return self.replica.lost_until(offset)

    def pass_over(self, end_offset: int, epoch: int) -> None:
        """Go on behind what the leader has written down as lost."""
        if not self.online:
            return
        self._entered, log = None, self.replica.log
        self.disk.may_be_cut(CUT_AMID_A_TRUNCATION)
        with at("files"):
            fresh = pass_over(self.disk.store, log, end_offset, epoch, self.disk.now)
        resume_as(log, fresh)
        left = [*self.records, *[GONE] * (end_offset - len(self.records))]
        self.records = self._read()
        if self.records != left or self.synced_offset != end_offset:
            raise Damaged(f"{log!r} passed over what is lost up to {end_offset}, and has {self.records} for {left}")
        self.disk.may_be_cut(CUT_AMID_A_TRUNCATION, STEPS_BEHIND)
        self.disk.checkpoint()

    def take_over(self, before: RealLog) -> None:
        """Be what a start has found of a log; what was truncated must not be there again."""
        self.cut, self.is_made_anew = before.cut, before.is_made_anew and self.missing
        back = self.cut.intersection(self.records)
        if back:
            raise Damaged(f"{self.replica.log!r} has what was truncated: {back}")

    # reading

    def _read(self) -> list[Record]:
        """All that is written, from its bytes."""
        found: list[Record] = [GONE] * self.log_start_offset
        while len(found) < self.log_end_offset:
            with at("reader"):
                data = self.replica.read(len(found), 1 << 16, blocking=True)
            if not data and not self.has_missing and self.lost_until(len(found)) < self.log_end_offset:
                raise Damaged(f"{self.replica.log!r} has nothing at offset {len(found)}")
            for base_offset, records in batches_of(data or b""):
                found += [GONE] * (base_offset - len(found))
                found += records[len(found) - base_offset :]
            if not data:
                found += [GONE] * (self.log_end_offset - len(found))
        return found

    def _without_lacks(self, records: Sequence[Record]) -> list[Record]:
        """What is left of records where damage was found, which another replica is to give."""
        lacks = [one for _, one in self.replica.log.missing_ranges]
        return [
            GONE if any(one.first_offset <= offset < one.end_offset for one in lacks) else record
            for offset, record in enumerate(records)
        ]

    def fetched(self, offset: int, records_max: int) -> bytes:
        if not self.online or self.has_missing or offset > self.log_end_offset:
            return b""
        with at("reader"):
            return bytes(self.replica.read(offset, records_max * BATCH_BYTES, blocking=True) or b"")

    def shown(self, high_watermark: int) -> Sequence[Record]:
        """Tell the log how far it may show, and look at what it shows."""
        if not self.online or self.has_missing:
            return self.records
        with at("loop"):
            self.replica.show(high_watermark)
        if self.replica.log.high_watermark > high_watermark:
            raise Damaged(f"{self.replica.log!r} shows {self.replica.log.high_watermark}, {high_watermark} is told")
        with at("reader"):
            self._look(self.replica.log.high_watermark)
        return self.records

    def _look(self, high_watermark: int) -> None:
        offset = max(self.log_start_offset, min(self._looked, high_watermark) - SHOWN_AGAIN)
        self._looked = high_watermark
        while offset < high_watermark:
            data = self.replica.log.reader.read(offset, 1000, blocking=True)
            if not data and self.lost_until(offset) < high_watermark:
                raise Damaged(f"{self.replica.log!r} does not show offset {offset}, {high_watermark} is told")
            if not data:
                data, offset = b"", high_watermark
            for base_offset, records in batches_of(data):
                while offset < base_offset:
                    if self.records[offset] != GONE:
                        raise Damaged(f"{self.replica.log!r} shows nothing at {offset} for {self.records[offset]}")
                    offset += 1
                for record in records[offset - base_offset :]:
                    if record != self.records[offset]:
                        raise Damaged(f"{self.replica.log!r} shows {record} at {offset} for {self.records[offset]}")
                    offset += 1
        if self.replica.log.reader.read(high_watermark, 1000, blocking=True) != b"":
            raise Damaged(f"{self.replica.log!r} shows more than {high_watermark}")

    # writing

    def _rolled(self, work: Callable[[], T]) -> T:
        """Append, where a worker must begin the next segment first, behind a sync under way, or open the file."""
        log = self.replica.log
        for _ in range(3):
            try:
                return work()
            except RollDue:
                self._under_way.run()
                with at("disk"):
                    log.roller.roll()
                log.writer.end_roll()
            except WouldBlockError:
                with at("writer"):
                    log.state.active.file  # noqa: B018  it is held open then
        raise Damaged(f"{log!r} takes nothing")

    def lead(self, epoch: int, values: Sequence[int]) -> None:
        """One batch."""
        self.disk.may_be_cut(CUT_AMID)
        log = self.replica.log
        records = [(None, b"%d" % value) for value in values]
        made = memoryview(bytearray(build_batch(records, timestamp_ms=NOW_MS + values[0])))
        self._rolled(partial(log.writer.append, made, read_header(made), self.disk.now, opens=False))
        if read_header(made).leader_epoch != epoch:
            raise Damaged(f"{log!r} writes in epoch {log.leader_epoch}, not in {epoch}")
        self.replica.batches_appended()
        self.records += [Record(epoch, value) for value in values]

    def begins_amid(self, fetched: bytes) -> bool:
        """Whether it is empty, and starts amid the first batch of these."""
        return begins_before(memoryview(fetched), self.replica.log.state) is not None

    def _begin_amid(self, batch: memoryview) -> bool:
        """Whether it has the batch now, amid which it starts."""
        log = self.replica.log
        if not replica_truncation.hold(log):
            return False
        with at("files"):
            fresh = begin_amid(self.disk.store, log, batch, self.disk.now)
        resume_as(log, fresh)
        self.replica.batches_appended()
        self.records = self._read()
        return True

    def begin_append(self, fetched: bytes) -> AppendUnderWay:
        """Write as much as the segment takes, in a worker's hands."""
        view = memoryview(bytearray(fetched))
        self.cut -= set(records_in(view))
        replica = self.replica
        return AppendUnderWay(self._rolled(lambda: replica.begin_append(view, self.disk.now)))

    def end_append(self, under_way: AppendUnderWay) -> None:
        """It is written."""
        if not self.online:  # the card has failed meanwhile
            self.replica.log.writer.end_write()
            return
        self.replica.end_append(under_way.writing)
        self.records += records_in(under_way.writing.records)
        self._keep_epoch()

    def append(self, fetched: bytes) -> None:
        self.disk.may_be_cut(CUT_AMID)
        view = memoryview(bytearray(fetched))
        self.cut -= set(records_in(view))  # a write that the power ends may be there
        first = begins_before(view, self.replica.log.state)
        if first is not None:
            if not self._begin_amid(view[: first.size]):
                return
            view = view[first.size :]
        while view:
            size = self._rolled(partial(self.replica.append, view, self.disk.now, opens=False))
            self.records += records_in(view[:size])
            view = view[size:]
        self._keep_epoch()

    def _keep_epoch(self) -> None:
        if self.replica.epoch_due:
            with at("disk"):
                self.replica.keep_epoch()

    def begin_epoch(self, epoch: int) -> int:
        self.replica.begin_epoch(epoch)
        return self.log_end_offset

    def epoch_begun(self, epoch: int, start: int) -> None:
        self.disk.may_be_cut(CUT_AMID * 10)
        if self.online:
            with at("disk"):
                self.replica.keep_epoch()

    def begin_sync(self) -> Writing:
        self._under_way = Writing(self.replica.log.writer.begin_flush())
        return self._under_way

    def end_sync(self, writing: Writing) -> None:
        self.disk.may_be_cut(CUT_AMID)
        writing.run()
        if writing.flush is not None:
            self.replica.log.writer.finish_flush(writing.flush)
        self.disk.checkpoint()

    # truncation

    def _is_cut_for(self, wanted: int, end_offset: int) -> bool:
        """Whether it is to end where it should, or where the batch begins that lies around that."""
        return end_offset == wanted or end_offset < wanted < self._batch_at(end_offset).next_offset

    def enter(self, end_offset: int) -> None:
        with at("files"):
            self._entered = enter(self.replica.log, end_offset)

    def removable(self, high_watermark: int) -> int:
        """How far retention may go: to the end of the last batch that is shown whole."""
        if self.replica.log.high_watermark >= high_watermark:
            return high_watermark
        batch = self._batch_at(high_watermark - 1)
        return high_watermark if batch.next_offset <= high_watermark else batch.base_offset

    def remove_front(self, offset: int) -> None:
        """Delete what was shown before an offset, as a leader's retention does."""
        self.disk.may_be_cut(CUT_AMID * 10)
        with at("files"):
            if self.replica.log.high_watermark < offset:
                self.replica.show_exactly(self._batch_at(offset - 1).next_offset)
            delete_records(self.replica.log, offset, self.disk.now)
        self.records[:offset] = [GONE] * offset

    def follow_start(self, offset: int) -> None:
        """Remove what the leader has removed."""
        self.disk.may_be_cut(CUT_AMID * 10)
        log = self.replica.log
        with at("files"):
            follow_start(log, min(offset, log.high_watermark), self.disk.now)
        start = self.log_start_offset
        self.records[:start] = [GONE] * start

    def start_anew(self, offset: int) -> None:
        """Empty it, and go on at an offset."""
        if not self.online:
            return
        self._entered, log = None, self.replica.log
        self.disk.may_be_cut(CUT_AMID_A_TRUNCATION)
        self.is_made_anew = offset < self.log_end_offset
        with at("files"):
            fresh = start_anew(self.disk.store, log, offset, self.disk.now)
        resume_as(log, fresh)
        self.is_made_anew = False
        self.cut |= set(self.records) - {GONE}
        self.records = self._read()
        if self.records != [GONE] * offset:
            raise Damaged(f"{log!r} began anew at {offset}, and has {self.records}")
        self.disk.may_be_cut(CUT_AMID_A_TRUNCATION, STEPS_BEHIND)
        self.disk.checkpoint()

    def begin_truncation(self, end_offset: int) -> None:
        """What is under way ends first."""

    def hold(self) -> bool:
        """Whether it may be truncated now."""
        return not self.online or replica_truncation.hold(self.replica.log)

    def truncated(self, end_offset: int) -> None:
        if not self.online:
            return
        entered, self._entered = self._entered, None
        if entered is None or not self._is_cut_for(end_offset, entered.end.end_offset):
            raise Damaged(f"{self.replica.log!r} is truncated to {end_offset}, and {entered} is written down")
        end_offset = entered.end.end_offset
        self.disk.may_be_cut(CUT_AMID_A_TRUNCATION)
        log = self.replica.log
        with at("files"):
            fresh = truncate(self.disk.store, log, entered, self.disk.now)
        resume_as(log, fresh)
        left = self._without_lacks(self.records[:end_offset])
        self.cut |= set(self.records[end_offset:]) - {GONE}
        self.records = self._read()
        if self.records != left:
            raise Damaged(f"{log!r} was truncated to {end_offset}, and has other records than before")
        self.disk.may_be_cut(CUT_AMID_A_TRUNCATION, STEPS_BEHIND)
        self.disk.checkpoint()


class RealDisk:
    """A card, as Disk."""

    def __init__(self, seed: int, disturbed: Callable[[], bool], disk: SimulatedDisk | None = None) -> None:
        self._disturbed = disturbed  # whether the power may go amid an act
        self._dice = random.Random(seed)
        self.disk = disk or SimulatedDisk(seed, ordered=bool(seed % 2))
        self.logs: dict[tuple[PartitionId, str], RealLog] = {}
        self._new = True  # nothing was done since it was opened
        self._open()

    def _open(self) -> None:
        """Open what lies there, without any fault."""
        before = self.logs
        with at(None):
            self.store = LogStore.open(self.disk, "/data", SETTINGS, READING, self._uuid, "board", in_cluster=True)
        self.logs = {}
        self._new, self._filled = True, False
        for where in before:
            if not self._lies_here(*where):
                raise Damaged(f"{where} is gone, and nobody has removed it")
            self.open(*where, synced=True).take_over(before[where])
        bad = ("are lost", "offline", "belongs to no topic")
        notes = [note for note in self.store.recovery_notes if any(each in note for each in bad)]
        notes = [note for note in notes if "directory is missing" not in note]  # see `lose`
        begun = [log.replica.log.directory for log in before.values() if log.is_made_anew]
        notes = [note for note in notes if not any(f"{directory} " in note for directory in begun)]
        if notes:
            raise Damaged(f"a start says: {notes}")

    def _uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self._dice.getrandbits(128), version=4)

    @property
    def now(self) -> Now:
        return self.store.directory.age.now(READING)

    @property
    def directory(self) -> str:
        assert self.store.directory.registrations is not None
        return self.store.directory.registrations.directory

    @property
    def epochs(self) -> tuple[int, ...]:
        assert self.store.directory.registrations is not None
        return self.store.directory.registrations.epochs

    @property
    def journal(self) -> list[Entry]:
        """What the ledger says that clusters lose."""
        log = self.store.ledger_log
        entries, offset = list[Entry](), log.log_start_offset
        while offset < log.high_watermark:
            batches = whole_batches(log.reader.read(offset, 1 << 16, blocking=True) or b"")
            for batch in batches:
                entries += [entry for record in records_of(batch) if (entry := entry_of(record.value or b""))]
            offset = read_header(batches[-1]).next_offset
        return entries

    @property
    def values(self) -> set[int]:
        return {record.value for log in self.logs.values() for record in log.records}

    @property
    def marker_files(self) -> SimulatedDisk:
        return self.disk

    # what happens to it

    def start(self) -> None:
        """A process begins on it."""
        if not self._new:
            self.disk.kill()
            self._open()
        self._new = False

    @property
    def kept_states(self) -> KeptStates:
        with at(None):
            return read_kept_states(self.disk, "/data", self.epochs)

    def keep_states(self, states: KeptStates, epoch: int) -> None:
        with at("files"):
            write_kept_states(self.disk, "/data", states, epoch)

    def register(self, epoch: int) -> None:
        self.may_be_cut(CUT_AMID * 10)
        with at("files"):
            self.store.directory.register(epoch, CLUSTER)

    def open(self, partition: PartitionId, topic_id: str, *, synced: bool) -> RealLog:
        """The log of a partition; `synced` counts where the topic is made."""
        found = self.logs.get((partition, topic_id))
        if found is None:
            topic = self.store.topics.get(partition.topic)
            if topic is None:
                with at("files"):
                    config = {} if synced else {"edge.durability": "kernel"}
                    topic = self.store.topic_files.make_topic(partition.topic, PARTITIONS, config, id_of(topic_id))
                self.store.add_topic(topic)
            if id_text(topic.topic_id) != topic_id:
                raise Damaged(f"{partition} of {topic_id} is opened, and {topic.topic_id} is here")
            found = self.logs[partition, topic_id] = RealLog(self, partition, topic.partitions[partition.partition])
        return found

    @property
    def held(self) -> list[tuple[PartitionId, str]]:
        replicated = [topic for topic in self.store.topics.values() if self.store.directory.is_replicated(topic.name)]
        return [
            (PartitionId(topic.name, log.partition), id_text(topic.topic_id))
            for topic in replicated
            for log in topic.partitions
        ]

    def _lies_here(self, partition: PartitionId, topic_id: str) -> bool:
        topic = self.store.topics.get(partition.topic)
        return topic is not None and id_text(topic.topic_id) == topic_id

    def has_room(self, partition: PartitionId, topic_id: str) -> bool:
        return partition.topic not in self.store.topics or self._lies_here(partition, topic_id)

    def remove(self, partition: PartitionId, topic_id: str) -> None:
        """As DeleteTopics does, in one go: the power may be cut amid it, and a start goes on."""
        if not self._lies_here(partition, topic_id):
            return
        for where in [each for each in self.logs if each[1] == topic_id]:
            del self.logs[where]
        topic = self.store.remove_topic(partition.topic)
        self.may_be_cut(CUT_AMID_A_DELETION)
        with at("files"):
            self.store.topic_files.erase_topic(topic)
        self.store.forget_topic(topic)
        self.checkpoint()

    def leftovers(self, *topic_ids: str) -> list[str]:
        names = [name for name in self.disk.names("/data") if split_partition_directory(name) is not None]
        there = {f"{each.topic}-{each.partition}" for each, one in self.held if one in topic_ids}
        own = [topic.name for topic in self.store.topics.values() if not self.store.directory.is_replicated(topic.name)]
        mine = {*(f"{name}-0" for name in own), *there}
        gone = self.disk.names("/data/deleted") if self.disk.exists("/data/deleted") else []
        return [*(name for name in names if name not in mine), *gone]

    def enter(self, partition: PartitionId, topic_id: str, cause: Cause, losses: Sequence[LostRange]) -> None:
        log = self.logs[partition, topic_id]
        if not log.online or not losses:
            return
        self.may_be_cut(CUT_AMID * 10)
        if losses[0].end_offset is None:
            with at("files"):
                enter_unknown(log.replica.log, losses[0].epoch, cause)
        else:
            log.enter(losses[0].first_offset)

    def reopen(self, partition: PartitionId, topic_id: str, *, may_recreate: bool, kept_until: int) -> None:
        self.logs[partition, topic_id].reopen(may_recreate=may_recreate, kept_until=kept_until)

    def lose(self, partition: PartitionId, topic_id: str) -> set[int]:
        """The directory of a log is lost while nothing runs, with all that is in it."""
        log, self.disk.crash_at = self.logs[partition, topic_id], -1
        values = {record.value for record in log.records}
        directory = log.replica.log.directory
        for name in self.disk.names(directory):
            self.disk.remove(f"{directory}/{name}")
        self.disk.remove_directory(directory)
        self.disk.sync_directory("/data")
        log.cut = frozenset()
        self.disk.kill()
        self._open()
        self.logs[partition, topic_id].cut = frozenset()
        return values

    def own_up(self, partition: PartitionId, topic_id: str) -> None:
        self.logs[partition, topic_id].own_up()

    def checkpoint(self) -> None:
        """Now and then positions are written down."""
        if self._dice.random() < CHECKPOINT:
            with at("files"):
                self.store.checkpoint()

    def may_be_cut(self, chance: float, steps_max: int = STEPS_MAX) -> None:
        """Perhaps the power goes at one of the next steps."""
        if self._disturbed() and self._dice.random() < chance:
            self.disk.crash_at = self.disk.steps + self._dice.randrange(1, steps_max)

    def cut_power(self, dice: random.Random) -> set[int]:
        unsynced = {record.value for log in self.logs.values() for record in log.records[log.synced_offset :]}
        self.disk.crash()
        self._open()
        return unsynced - self.values

    def fill(self, *, full: bool) -> None:
        self._filled = full
        for (partition, _), log in self.logs.items():
            if partition.topic not in ALWAYS_WRITTEN:
                log.full = full

    @property
    def is_full(self) -> bool:
        return self._filled

    def calm(self) -> None:
        self.disk.crash_at = -1
        self.fill(full=False)

    def copy(self) -> RealDisk:
        """An image of the card, which need not be at rest."""
        seed = self._dice.getrandbits(48)
        disk = self.disk.fork(seed)
        other = RealDisk(seed, self._disturbed, disk)
        for where in self.logs:
            other.open(*where, synced=True).cut = self.logs[where].cut
        return other


def records_in(data: bytes | bytearray | memoryview) -> list[Record]:
    """The records of whole batches."""
    return [record for _, records in batches_of(data) for record in records]


def batches_of(data: bytes | bytearray | memoryview) -> Iterator[tuple[int, tuple[Record, ...]]]:
    """The base offset and the records of whole batches."""
    whole, position = bytes(data), 0
    while position < len(whole):
        base_offset, length = _LENGTH.unpack_from(whole, position)
        end = position + _LENGTH.size + length
        yield base_offset, _records(whole[position:end])
        position = end


@lru_cache(maxsize=1 << 14)
def _records(batch: bytes) -> tuple[Record, ...]:
    """What one whole batch holds: all boards read the same ones, again and again."""
    epoch = read_header(batch).leader_epoch
    return tuple(Record(epoch, int(record.value or b"-1")) for record in records_of(batch))


def entry_of(value: bytes) -> Entry | None:
    """A line of the ledger that speaks of a cluster."""
    fields = json.loads(value)
    if fields["cause"] not in ("truncated", "unclean_election", "damaged", "sync_failed"):
        if fields["cause"] != "unsynced_cut":
            raise Damaged(f"the ledger says {fields}")
        return None
    end = None if fields["last_offset"] is None else fields["last_offset"] + 1
    lost = LostRange(fields.get("leader_epoch", -1), fields["first_offset"], end)
    topic_id = fields["id"].split(":")[4]  # cause, topic, partition, offsets, the topic's id
    return Entry(PartitionId(fields["topic"], fields["partition"]), fields["cause"], lost, topic_id)


def hash_of(seed: int, number: int) -> int:
    """A seed for one of many."""
    return random.Random(f"card {number} of {seed}").getrandbits(48)
