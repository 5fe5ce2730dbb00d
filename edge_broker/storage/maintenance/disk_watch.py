"""The look at the disk: how much is free, what eviction has to take away, and whether writes are refused.

About once a second, and at once when the system had no space. Most looks cost one statvfs: partitions are only looked
at when the disk is low or a topic has a budget.

| look finds | then |
|---|---|
| free space above the low mark, budgets kept | the reserves are renewed, nothing else |
| less | the plan of retention/eviction_plan.py is executed, partition by partition; one that fails costs no other |
| an active segment that has to go | it is named in `rolls`; the next look takes it |
| other boards' disks are full, and too few replicas have room | a step of what is led here is evicted for them |
| not enough could go | `refusing`, or the topic is in `full_topics` |
| stage 3 would begin, and other boards have room for what is led here | `tight`: nothing of stage 3 goes for the disk |
| in a cluster: either of the two, or neither for a minute | full_disk_marker.py makes or removes the marker |

Contains: from logs to the plan's views and from its steps to removals. Does not contain: the order of what goes
(retention/eviction_plan.py), the order of acts in a removal (retention/segment_removal.py), clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from edge_broker.errors import Refusal, StorageFault
from edge_broker.storage.files.atomic_files import fault_of
from edge_broker.storage.files.data_age import Now
from edge_broker.storage.maintenance.preallocation import Reserve
from edge_broker.storage.metadata.loss_records import CAUSES
from edge_broker.storage.retention.eviction_plan import (
    EVICTED,
    PASSED,
    REFUSED,
    Marks,
    PartitionView,
    Plan,
    SegmentView,
    marks_of,
    plan,
    refuses,
)
from edge_broker.storage.retention.segment_removal import (
    OFFSET_MAX,
    RemovalCount,
    RemovalRange,
    SegmentRemoval,
    evict,
    expired_causes,
    remove_front,
    split_at,
)
from edge_broker.storage.shared_log_parts import WRITTEN_ON
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.storage.log.partition_log import PartitionLog
    from edge_broker.storage.log_store import LogStore
    from edge_broker.storage.maintenance.full_disk_marker import FullDiskMarker
    from edge_broker.storage.topic import Topic

Passed: TypeAlias = Mapping[tuple[str, int], int]
NOTHING_PASSED: Passed = {}
FOR_OTHERS_MS = 2_000  # between two evictions for other boards: what the former one brought them shows by then
ATTEMPTS = 4  # others are tried so often if one fails; the next check starts again
LOGS_RESERVED_MAX = 8  # 256 KiB each, whatever offsets.topic.num.partitions is


class DiskStatus(NamedTuple):
    """The result of a check; `free` and `total` are bytes of the disk, `stage` the highest that was needed.

    `tight`: other boards should lead what is led here, as only unpassed data is left to go.
    """

    total: int
    free: int
    marks: Marks
    stage: int
    refusing: bool
    full_topics: frozenset[str]
    rolls: Sequence[PartitionLog]
    notes: Sequence[str]
    tight: bool = False

    @property
    def room_bytes(self) -> int:
        """The bytes that may be written before the next check; below 0 none may."""
        return -1 if self.refusing else self.free - self.marks.min


class LossCount(NamedTuple):
    """Records and bytes of a topic that were recorded as lost by this process."""

    records: int
    bytes: int


class DiskWatch:
    """Looks at one store's disk; all methods for the worker `files`, the attributes for anybody to read.

    `full_disk_marker` is set in a cluster, before the first look.
    """

    def __init__(self, store: LogStore, low_bytes: int = -1, min_bytes: int = -1) -> None:
        self._store = store
        self._low_bytes, self._min_bytes = low_bytes, min_bytes
        self._reserves: dict[PartitionLog, Reserve] = {}
        self._reserve_noted = False
        self._refusing = self._tight = False
        self._notes: list[str] = []
        self._rolls: list[PartitionLog] = []
        self._told: set[str] = set()
        self._wrong: set[str] = set()  # what this look found wrong
        self.lost: dict[str, LossCount] = {}  # by topic; entries are replaced
        self._led: Collection[PartitionLog] | None = None
        self._for_others_age_ms = -FOR_OTHERS_MS
        self.full_disk_marker: FullDiskMarker | None = None

    def check(
        self,
        passed: Passed,
        now: Now,
        led: Collection[PartitionLog] | None = None,
        *,
        spares: bool = False,
        for_others: Mapping[PartitionLog, int] | None = None,
    ) -> DiskStatus:
        """Look, and take away what has to go; `passed` is each partition's least offset among its topic's groups.

        `led` are the logs of which anything may go, in a cluster those that this broker leads, as far as they are
        shown; None: all. `spares`: other boards can lead some, so stage 3 waits. `for_others`: logs, and below which
        offset they are evicted for full disks of other boards. StorageFault when the disk itself cannot be looked at.
        """
        self._led = led
        self._notes, self._rolls = [], []
        self._told, self._wrong = self._wrong, set()
        try:
            total, free = self._store.fs.space(self._store.data_dir)
            marks = marks_of(total, self._low_bytes, self._min_bytes)
            stage = 0
            if free < marks.low:
                stage = self._relieve(
                    self._topics(), passed, now, lambda: marks.low - self._free(), PASSED if spares else EVICTED
                )
            for topic in self._budgets():
                stage = max(stage, self._relieve([topic], passed, now, lambda topic=topic: _excess(topic)))  # type: ignore[misc]
            self._evict_for_others(for_others or {}, passed, now)
            free = self._free()
            self._refusing = refuses(free, marks, self._refusing)
            self._tight = self._is_tight(free, marks, spares=spares)
            if self.full_disk_marker is not None:
                self.full_disk_marker.update(now, is_full=self._refusing or self._tight)
            self._set_aside()
        except OSError as error:
            raise fault_of(error, self._store.data_dir, 0) from error
        rolling = {log.topic for log in self._rolls}
        full = frozenset(topic.name for topic in self._budgets() if _excess(topic) > 0 and topic.name not in rolling)
        stage = REFUSED if self._refusing or full else stage
        return DiskStatus(total, free, marks, stage, self._refusing, full, self._rolls, self._notes, self._tight)

    def _is_tight(self, free: int, marks: Marks, *, spares: bool) -> bool:
        """From the low mark on where others can lead; over once half the room between the marks is there above it."""
        if self._tight:
            return free < marks.low + (marks.low - marks.min) // 2
        return spares and free < marks.low

    def _free(self) -> int:
        return self._store.fs.space(self._store.data_dir).free

    def _topics(self) -> list[Topic]:
        return [topic for topic in list(self._store.topics.values()) if topic.name not in WRITTEN_ON]

    def _budgets(self) -> list[Topic]:
        return [topic for topic in self._topics() if topic.settings.budget_bytes >= 0]

    def _relieve(
        self,
        topics: Sequence[Topic],
        passed: Passed,
        now: Now,
        wanted: Callable[[], int],
        stage_max: int = EVICTED,
    ) -> int:
        """Plan and execute until `wanted` bytes are had; the stage that it came to. Others stand in for who fails."""
        stage = 0
        failed: set[PartitionLog] = set()
        for _ in range(ATTEMPTS):
            bytes_wanted = wanted()
            if bytes_wanted <= 0:
                break
            seen = [(log, view) for log, view in self._views(topics, passed, now) if log not in failed]
            found = plan([view for _, view in seen], bytes_wanted, stage_max)
            stage = max(stage, found.stage)
            more = self._carry_out(seen, found, now)
            if not more:
                self._rolls += [seen[at][0] for at in found.rolls]
                break
            failed |= more
        return stage

    def _evict_for_others(self, wanted: Mapping[PartitionLog, int], passed: Passed, now: Now) -> None:
        """Evict a step of each log of the lowest priority: followers remove what is gone here, and get room."""
        logs = [log for log in wanted if log.fault is None and log.settings.deletes and not log.is_held]
        if not logs or now.age_ms < self._for_others_age_ms + FOR_OTHERS_MS:
            return
        self._for_others_age_ms = now.age_ms
        lowest = min(log.settings.priority for log in logs)
        for log in logs:
            if log.settings.priority == lowest:
                offset, passed_offset = min(wanted[log], log.high_watermark), passed.get((log.topic, log.partition), 0)
                try:
                    self._note(log, evict(log, offset, now, passed_offset))
                except (StorageFault, Refusal) as fault:
                    self._complain(f"{log.topic}-{log.partition}: nothing can be removed: {fault}")

    def _carry_out(
        self, seen: Sequence[tuple[PartitionLog, PartitionView]], found: Plan, now: Now
    ) -> set[PartitionLog]:
        """Remove what the plan says, step by step; the partitions where that failed."""
        gone = [0] * len(seen)
        failed: set[PartitionLog] = set()
        for step in found.steps:
            log, view = seen[step.view]
            segments = view.segments[gone[step.view] : gone[step.view] + step.segments]
            gone[step.view] += step.segments
            if log in failed:
                continue
            going = [
                SegmentRemoval(segment, _parts(view, one)) for segment, one in zip(log.segments, segments, strict=False)
            ]
            try:
                self._note(log, remove_front(log, going, now))
            except (StorageFault, Refusal) as fault:
                failed.add(log)
                self._complain(f"{log.topic}-{log.partition}: nothing can be removed: {fault}")
        return failed

    def _complain(self, sentence: str) -> None:
        """Note what is wrong, once as long as it lasts."""
        self._wrong.add(sentence)
        if sentence not in self._told:
            self._notes.append(sentence)

    def _note(self, log: PartitionLog, counted: Sequence[RemovalCount]) -> None:
        for one in counted:
            entry = one.entry()
            self._notes.append(
                f"{log.topic}-{log.partition}: offsets {entry.first_offset} to {entry.end_offset - 1} went "
                f"({entry.cause}, {entry.records} records, {entry.bytes} bytes)"
            )
            if entry.cause in CAUSES:
                before = self.lost.get(log.topic, LossCount(0, 0))
                self.lost[log.topic] = LossCount(before.records + entry.records, before.bytes + entry.bytes)

    def _views(self, topics: Sequence[Topic], passed: Passed, now: Now) -> list[tuple[PartitionLog, PartitionView]]:
        found = []
        for log in (log for topic in topics if topic.settings.deletes for log in topic.partitions):
            if log.fault is None and not log.is_held and (self._led is None or log in self._led):
                try:
                    view = view_of(log, passed.get((log.topic, log.partition), 0), now)
                    found.append((log, view if self._led is None else as_far_as_shown(log, view)))
                except StorageFault as fault:
                    self._complain(f"{log.topic}-{log.partition} cannot be looked at: {fault}")
        return found

    def _set_aside(self) -> None:
        """Keep the reserves, which belong to what goes on when the disk is full."""
        self._store.spare.renew()
        logs = [log for name in WRITTEN_ON if name in self._store.topics for log in self._store.topics[name].partitions]
        self._reserves = {log: self._reserves.get(log) or Reserve(log) for log in logs[:LOGS_RESERVED_MAX]}
        for reserve in self._reserves.values():
            if reserve.log.fault is None:
                reserve.renew()
            if not reserve.possible and not self._reserve_noted:
                self._reserve_noted = True
                self._notes.append(f"{reserve.log.directory}: this file system sets no space aside for a full disk")


def _excess(topic: Topic) -> int:
    return sum(log.size for log in topic.partitions) - topic.settings.budget_bytes


@runs_in()
def view_of(log: PartitionLog, passed_offset: int, now: Now) -> PartitionView:
    """A partition as the plan sees it. StorageFault when a segment cannot be read."""
    settings, segments = log.settings, log.segments
    expired = len(expired_causes(log, now, lambda segment: log.summary(segment, now)))
    ends = [segment.base_offset for segment in segments[1:]]
    start = log.log_start_offset
    closed = [
        SegmentView(
            max(segment.base_offset, start), end, segment.size, log.summary(segment, now).written_age_ms, at < expired
        )
        for at, (segment, end) in enumerate(zip(segments, ends, strict=False))
    ]
    last = segments[-1]
    active = SegmentView(last.base_offset, log.log_end_offset, last.size, last.tally.written_age_ms, expired=False)
    return PartitionView(
        log.topic,
        log.partition,
        settings.priority,
        bool(settings.required_groups),
        passed_offset,
        closed,
        active if last.size else None,
    )


def as_far_as_shown(log: PartitionLog, view: PartitionView) -> PartitionView:
    """Return a partition up to what all replicas have: a leader's log never starts after its high watermark."""
    shown = log.high_watermark
    closed = [segment for segment in view.segments if segment.end_offset <= shown]
    active = view.active if len(closed) == len(view.segments) else None
    return view._replace(segments=closed, active=active if active is not None and active.end_offset <= shown else None)


def _parts(view: PartitionView, segment: SegmentView) -> list[RemovalRange]:
    passed = OFFSET_MAX if segment.expired and not view.names_groups else view.passed_offset
    safe, lost = ("retention", "expired_unpassed") if segment.expired else ("passed", "evicted")
    return split_at(segment.base_offset, segment.end_offset, passed, safe, lost)
