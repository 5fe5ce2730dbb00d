"""Disks of boards in a simulated cluster: logs that tell what is written from what is synced, and lose the difference.

Quick ones, for many schedules, and for rules that are broken on purpose: cluster_storage.py has the broker's own logs
in their place, on disks that tear pages and lose names. A board's process needs of a disk and a log what both have.

Must never come in: what is decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from random import Random
from typing import NamedTuple

from edge_broker.broker.state.disk_space import ALWAYS_WRITTEN
from edge_broker.cluster.effects import LostRange
from edge_broker.cluster.state.cluster_state import PartitionId
from edge_broker.storage.log.leader_epochs import NONE, LeaderEpochs, Start
from edge_broker.storage.metadata.kept_states import KeptState, KeptStates, LogId, were_kept_before


class Record(NamedTuple):
    """One record: the epoch in which its leader took it, and a value that no other has."""

    epoch: int
    value: int


class Writing(NamedTuple):
    """What a sync brings to the disk: records from an offset on, before which nothing differs."""

    offset: int
    records: tuple[Record, ...]
    starts: tuple[Start, ...]


GONE = Record(-1, -1)
"""In place of a record that a log has removed, or lost for good."""


class AppendUnderWay(NamedTuple):
    """What a follower is writing."""

    records: Sequence[Record]

    def run(self) -> None:
        """The kernel has it; this log knows no difference."""


class SimLog:
    """As a PartitionLog, record by record."""

    def __init__(self, *, synced: bool = True) -> None:
        self._synced, self.cut_epoch = synced, -1
        self.log_start_offset = 0
        self.records: list[Record] = []
        self.epochs = LeaderEpochs()
        self.synced_offset = 0
        self.online, self.full = True, False
        self.refuses = False  # a card that has failed, until the next start
        self.missing = False
        self.led_from: int | None = None
        self._rotten: set[int] = set()
        self.durable: list[Record] = []
        self.durable_starts: tuple[Start, ...] = ()
        self.syncing = self.busy = False
        self.works = 0  # under way, which a deletion waits for
        self._same = 0  # so many records are the same on the disk
        self._cut_since = 0  # the least end since the sync under way began

    @property
    def log_end_offset(self) -> int:
        return len(self.records)

    @property
    def acknowledged_offset(self) -> int:
        return self.synced_offset if self._synced else len(self.records)

    def may_lack(self, epoch: int) -> bool:
        return epoch <= self.cut_epoch and not self._synced

    @property
    def has_missing(self) -> bool:
        return bool(self.lacked)

    @property
    def lacked(self) -> list[int]:
        """Offsets whose records are lost here, and not written down as that."""
        return sorted(each for each in self._rotten if self.log_start_offset <= each < len(self.records))

    def lost_with(self, offset: int) -> Sequence[Record]:
        """What goes where a byte of the record there changes."""
        return self.records[offset : offset + 1]

    def begins_amid(self, fetched: Sequence[Record]) -> bool:
        """Whether it starts amid the first batch: here each record is one."""
        return False

    def rot(self, offset: int) -> None:
        """The record there is lost, and that was found, and written down."""
        self._rotten.add(offset)

    def cut_damage(self) -> None:
        """End where the damage begins; where it went from the front since that was decided, at the end."""
        end_offset = self.lacked[0] if self.lacked else self.log_end_offset
        self.begin_truncation(end_offset)
        self.truncated(end_offset)

    def own_up(self) -> list[LostRange]:
        """Nobody has it; what is to be written down."""
        lost = [LostRange(self.records[each].epoch, each, each + 1) for each in self.lacked]
        for each in self.lacked:
            self.records[each] = GONE
            self.durable[each : each + 1] = [GONE]
        self._rotten.clear()
        return lost

    def lost_until(self, offset: int) -> int:
        """As a Replica says it."""
        while self.log_start_offset <= offset < len(self.records) and self.records[offset] is GONE:
            offset += 1
        return offset

    def pass_over(self, end_offset: int, epoch: int) -> None:
        """Have as lost what the leader has as that; on the disk, too."""
        self.end_sync(self.begin_sync())
        if epoch > self.epochs.latest:
            self.epochs.note(epoch, len(self.records))
        self.records += [GONE] * (end_offset - len(self.records))
        self.end_sync(self.begin_sync())

    @property
    def unconfirmed_epoch(self) -> int:
        led = self.led_from is not None and max(self.synced_offset, self.led_from) < len(self.records)
        return self.records[-1].epoch if led else NONE

    def reopen(self, *, may_recreate: bool, kept_until: int = 0) -> list[LostRange]:
        """Open what the disk has for certain, if it lets one; what is to be written down, as this one led it."""
        if self.online or self.refuses or not (self._synced or may_recreate):
            return []
        lost = []
        if may_recreate:
            self.start_anew(0)
        else:
            end = self.synced_offset
            first = len(self.records) if self.led_from is None else max(end, self.led_from, kept_until)
            lost = [
                LostRange(one.epoch, offset, offset + 1) for offset, one in enumerate(self.records) if offset >= first
            ]
            self.begin_truncation(end)
            self.truncated(end)
        self.online, self.missing, self.led_from = True, False, None
        return lost

    def lose(self) -> set[int]:
        """Nothing is left of it on the disk; the values that are gone."""
        values = {record.value for record in self.records}
        self.start_anew(0)
        self.online, self.missing = False, True
        return values

    def append(self, records: Sequence[Record]) -> None:
        """Write; an epoch without a record that is greater, or all of a log that holds none, is forgotten."""
        self.led_from = None
        for record in records:
            self.epochs.note(record.epoch, len(self.records), first=len(self.records) == self.log_start_offset)
            self.records.append(record)

    def begin_append(self, records: Sequence[Record]) -> AppendUnderWay:
        """Write, in a worker's hands."""
        self.busy = True
        return AppendUnderWay(records)

    def end_append(self, under_way: AppendUnderWay) -> None:
        """It is written."""
        self.busy = False
        if self.online:
            self.append(under_way.records)

    def lead(self, epoch: int, values: Sequence[int]) -> None:
        """Append as a leader does."""
        led_from = self.led_from
        self.append([Record(epoch, value) for value in values])
        self.led_from = led_from

    def fetched(self, offset: int, records_max: int) -> tuple[Record, ...]:
        """What a follower is sent: nothing of both sides of what is lost."""
        if self.has_missing:
            return ()
        found = self.records[offset : offset + records_max]
        return tuple(found[: found.index(GONE)] if GONE in found else found)

    def shown(self, high_watermark: int) -> Sequence[Record]:
        """What a consumer finds, at least up to there."""
        return self.records

    def begin_epoch(self, epoch: int) -> int:
        """A leader's first act, in memory; where it begins."""
        self.epochs.note(epoch, len(self.records))
        self.led_from = len(self.records)
        return len(self.records)

    def epoch_begun(self, epoch: int, start: int) -> None:
        """It is on the disk."""
        self.durable_starts = (*self.durable_starts, (epoch, start))

    def begin_truncation(self, end_offset: int) -> None:
        """Cut the end off, in memory."""
        del self.records[end_offset:]
        self._rotten = {each for each in self._rotten if each < end_offset}
        self.epochs.cut(self.log_start_offset, end_offset)
        self.synced_offset = min(self.synced_offset, end_offset)
        self._same = min(self._same, end_offset)
        self._cut_since = min(self._cut_since, end_offset)

    def truncated(self, end_offset: int) -> None:
        """The cut is on the disk."""
        del self.durable[end_offset:]
        self._same = min(self._same, end_offset)
        self.durable_starts = tuple(each for each in self.durable_starts if each[1] < end_offset)

    def removable(self, high_watermark: int) -> int:
        """How far retention may go; here are no batches."""
        return high_watermark

    def remove_front(self, offset: int) -> None:
        """As retention does; the account of it is synced, and so is all before."""
        for records in (self.records, self.durable):
            records[:offset] = [GONE] * offset
        self.log_start_offset = offset
        self._same, self.synced_offset = max(self._same, offset), max(self.synced_offset, offset)

    def follow_start(self, offset: int) -> None:
        """As the leader has done."""
        self.remove_front(offset)

    def start_anew(self, offset: int) -> None:
        """Empty it, and go on at an offset; on the disk, too."""
        self._rotten.clear()
        self.records, self.durable = [GONE] * offset, [GONE] * offset
        self.log_start_offset = self.synced_offset = self._same = self._cut_since = offset
        self.epochs, self.durable_starts = LeaderEpochs(), ()

    def begin_sync(self) -> Writing:
        """What a sync that begins now will have written; one at a time."""
        self._cut_since = len(self.records)
        return Writing(self._same, tuple(self.records[self._same :]), self.epochs.starts)

    def end_sync(self, writing: Writing) -> None:
        """The disk has it; what was cut off meanwhile does not count."""
        del self.durable[writing.offset :]
        self.durable += writing.records
        self.durable_starts = writing.starts
        self._same = min(len(self.durable), self._cut_since)
        self.synced_offset = max(self.synced_offset, self._same)

    def hold(self) -> bool:
        """Whether it may be truncated now: also amid a sync."""
        return True

    def restart(self) -> None:
        """What a new process finds, and syncs before it serves."""
        self.syncing, self.busy, self.works = False, False, 0
        self.online, self.refuses, self.led_from = not self.missing, False, None
        self.end_sync(self.begin_sync())

    def cut_power(self, dice: Random) -> set[int]:
        """What is not synced is gone, apart from some of it; the values that are gone."""
        before = self.records
        kept = len(self.durable)
        if self.durable == before[:kept]:
            kept = dice.randint(kept, len(before))
            self.records = before[:kept]
        else:
            self.records = list(self.durable)
        starts = [start for start in self.durable_starts if start[1] <= len(self.records)]
        self.epochs = LeaderEpochs()
        for offset, record in enumerate(self.records):
            if record is GONE:
                continue
            for epoch, start in starts:
                if start == offset and epoch <= record.epoch:
                    self.epochs.note(epoch, start)
            self.epochs.note(record.epoch, offset)
        for epoch, start in starts:
            if start == len(self.records):
                self.epochs.note(epoch, start)
        self.synced_offset = self._same = len(self.records)
        self.durable = list(self.records)
        return {record.value for record in before} - {record.value for record in self.records}


class Entry(NamedTuple):
    """One line of the ledger's journal."""

    partition: PartitionId
    cause: str
    lost: LostRange
    topic_id: str


class MarkerFiles:
    """The names of a data directory's markers: each call is on the disk at once, and loses nothing."""

    def __init__(self) -> None:
        self._paths: set[str] = set()

    def exists(self, path: str) -> bool:
        return path in self._paths

    def create(self, path: str) -> MarkerFiles:
        self._paths.add(path)
        return self

    def rename(self, old: str, new: str) -> None:
        self._paths.remove(old)
        self._paths.add(new)

    def remove(self, path: str) -> None:
        self._paths.remove(path)

    def write(self, data: bytes, position: int) -> int:
        return len(data)

    def datasync(self) -> None:
        """A marker counts by its name."""

    def sync_directory(self, path: str) -> None:
        """Its names are on the disk already."""


class Disk:
    """A board's card."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.epochs: tuple[int, ...] = ()
        self._kept: dict[LogId, KeptState] = {}
        self._kept_under = -1
        self._filled = False
        self.logs: dict[tuple[PartitionId, str], SimLog] = {}
        self.journal: list[Entry] = []
        self.marker_files = MarkerFiles()

    def start(self) -> None:
        """A process begins on it."""
        for log in self.logs.values():
            log.restart()

    @property
    def kept_states(self) -> dict[LogId, KeptState]:
        return {} if were_kept_before(self._kept_under, self.epochs) else self._kept

    def keep_states(self, states: KeptStates, epoch: int) -> None:
        self._kept, self._kept_under = dict(states), epoch

    def register(self, epoch: int) -> None:
        self.epochs = (*self.epochs, epoch)

    def open(self, partition: PartitionId, topic_id: str, *, synced: bool) -> SimLog:
        return self.logs.setdefault((partition, topic_id), SimLog(synced=synced))

    @property
    def held(self) -> list[tuple[PartitionId, str]]:
        """Partitions of which there are logs, with their topics' ids."""
        return list(self.logs)

    def has_room(self, partition: PartitionId, topic_id: str) -> bool:
        """Whether no other topic of the name is in the way."""
        return all(each.topic != partition.topic or one == topic_id for each, one in self.logs)

    def remove(self, partition: PartitionId, topic_id: str) -> None:
        """All logs of a topic that was deleted."""
        for where in [each for each in self.logs if (each[0].topic, each[1]) == (partition.topic, topic_id)]:
            del self.logs[where]

    def leftovers(self, *topic_ids: str) -> list[str]:
        """What there is of other topics than these."""
        return [f"{partition} of {one}" for partition, one in self.logs if one not in topic_ids]

    def enter(self, partition: PartitionId, topic_id: str, cause: str, losses: Sequence[LostRange]) -> None:
        """Write losses down, synced."""
        self.journal += [Entry(partition, cause, lost, topic_id) for lost in losses]

    def cut_power(self, dice: Random) -> set[int]:
        """The values that are gone."""
        for log in self.logs.values():
            log.cut_epoch = max(self.epochs)  # whoever has a log has served
        return set().union(*[log.cut_power(dice) for log in self.logs.values()])

    def reopen(self, partition: PartitionId, topic_id: str, *, may_recreate: bool, kept_until: int) -> None:
        """Try to open a log that is offline."""
        lost = self.logs[partition, topic_id].reopen(may_recreate=may_recreate, kept_until=kept_until)
        self.enter(partition, topic_id, "sync_failed", lost)

    def lose(self, partition: PartitionId, topic_id: str) -> set[int]:
        """The directory of a log is lost, with all that is in it."""
        return self.logs[partition, topic_id].lose()

    def own_up(self, partition: PartitionId, topic_id: str) -> None:
        """Write down what a log lacks, as nobody has it."""
        self.enter(partition, topic_id, "damaged", self.logs[partition, topic_id].own_up())

    def fill(self, *, full: bool) -> None:
        """It takes nothing more but of internal topics, or has room again."""
        self._filled = full
        for (partition, _), log in self.logs.items():
            if partition.topic not in ALWAYS_WRITTEN:
                log.full = full

    @property
    def is_full(self) -> bool:
        """Whether it takes nothing more."""
        return self._filled

    def calm(self) -> None:
        """Nothing fails any more."""
        self.fill(full=False)

    def copy(self) -> Disk:
        """An image of the card."""
        made = deepcopy(self)
        made.fill(full=False)
        return made

    @property
    def values(self) -> set[int]:
        return {record.value for log in self.logs.values() for record in log.records}
