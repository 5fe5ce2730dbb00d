"""Plan what to remove if the disk, or a topic's budget, is full.

| stage | what goes | in which order | recorded |
|---|---|---|---|
| 1 | past its retention, and passed by every group that the topic names, if it names any | oldest first | |
| 2 | passed by every group that the topic names | oldest first | |
| 3 | anything else, of topics whose cleanup.policy deletes | lowest edge.priority first, then oldest | in the ledger |
| 4 | nothing: writes are refused until there is space again | | |

Stages 1 to 3 begin when free space falls below the low mark and end when it is back there; stage 4 begins below the
other mark and ends half way between the two. Within a partition only the oldest segment can go, so a later one that
is in a lower stage waits for it. A topic that names no group has no group that could make its data safe to
go: it is kept until its retention, or lost in stage 3.

Contains: marks and plan, pure. Does not contain: files, clocks, how a segment is removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

LOW_BYTES_MAX = 1 << 30
MIN_BYTES_MAX = 256 << 20
SEGMENTS_PER_DISK = 32
SEGMENTS_PER_BUDGET = 8
SEGMENT_BYTES_MIN = 256 << 10
EXPIRED, PASSED, EVICTED, REFUSED = 1, 2, 3, 4


class Marks(NamedTuple):
    """Free bytes below which eviction begins (`low`), writes are refused (`min`), and are taken again (`resume`)."""

    low: int
    min: int

    @property
    def resume(self) -> int:
        """Free bytes from which refused writes are taken again."""
        return self.min + (self.low - self.min) // 2


def marks_of(total_bytes: int, low_bytes: int = -1, min_bytes: int = -1) -> Marks:
    """The marks of a disk: -1 is a tenth of it and at most 1 GiB (low), a twentieth and at most 256 MiB (min).

    The low mark is never below the other one.
    """
    minimum = min(total_bytes // 20, MIN_BYTES_MAX) if min_bytes < 0 else min_bytes
    low = min(total_bytes // 10, LOW_BYTES_MAX) if low_bytes < 0 else low_bytes
    return Marks(max(low, minimum), minimum)


def segment_bytes_max(total_bytes: int, budget_bytes: int) -> int:
    """The size above which a segment is too large for a disk, or a topic's budget, to be cleared in small steps."""
    sizes = [total_bytes // SEGMENTS_PER_DISK]
    if budget_bytes >= 0:
        sizes.append(budget_bytes // SEGMENTS_PER_BUDGET)
    return max(min(sizes), SEGMENT_BYTES_MIN)


class SegmentView(NamedTuple):
    """The facts for the plan; `written_age_ms` is smaller for what is older."""

    base_offset: int
    end_offset: int
    bytes: int
    written_age_ms: int
    expired: bool


class PartitionView(NamedTuple):
    """A partition whose segments may go: closed ones, oldest first, and the one written to, None when it is empty.

    `passed_offset`: all below it was read by every group that the topic names; `names_groups` False: it names none.
    """

    topic: str
    partition: int
    priority: int
    names_groups: bool
    passed_offset: int
    segments: Sequence[SegmentView]
    active: SegmentView | None = None


class Step(NamedTuple):
    """Take the `segments` oldest closed ones of view number `view` away, of which the last is in `stage`."""

    view: int
    segments: int
    stage: int


class Plan(NamedTuple):
    """Steps in order; `rolls`: views whose active segment is to be closed, so that it can go next time.

    `bytes` are those of the segments in `steps` and `rolls`; `stage` is the highest that was needed.
    """

    steps: Sequence[Step]
    rolls: Sequence[int]
    bytes: int
    stage: int


def stage_of(view: PartitionView, segment: SegmentView) -> int:
    """In which stage a segment goes."""
    passed = segment.end_offset <= view.passed_offset
    if segment.expired and (passed or not view.names_groups):
        return EXPIRED
    return PASSED if passed and view.names_groups else EVICTED


def plan(views: Sequence[PartitionView], bytes_wanted: int, stage_max: int = EVICTED) -> Plan:
    """Return the steps that free `bytes_wanted`, or all that can go."""
    taken = [0] * len(views)
    steps: list[Step] = []
    rolls: list[int] = []
    freed, stage = 0, 0
    while freed < bytes_wanted:
        found = min((key for at in range(len(views)) if (key := _next(views, taken, rolls, at))), default=None)
        if found is None or found[0] > stage_max:
            break
        at = found[-1]
        segment = _front(views[at], taken[at])
        assert segment is not None
        if taken[at] < len(views[at].segments):
            taken[at] += 1
            _add(steps, Step(at, 1, found[0]))
        else:
            rolls.append(at)
        freed += segment.bytes
        stage = max(stage, found[0])
    return Plan(steps, rolls, freed, stage)


def _front(view: PartitionView, taken: int) -> SegmentView | None:
    return view.segments[taken] if taken < len(view.segments) else view.active


def _next(
    views: Sequence[PartitionView], taken: Sequence[int], rolls: Sequence[int], at: int
) -> tuple[int, int, int, int] | None:
    """When a partition's oldest segment goes, as a key that sorts."""
    view = views[at]
    segment = None if at in rolls else _front(view, taken[at])
    if segment is None:
        return None
    stage = stage_of(view, segment)
    return stage, view.priority if stage == EVICTED else 0, segment.written_age_ms, at


def _add(steps: list[Step], step: Step) -> None:
    """Append a step; neighbours of one partition are one removal."""
    if steps and steps[-1].view == step.view:
        steps[-1] = Step(step.view, steps[-1].segments + 1, step.stage)
    else:
        steps.append(step)


def refuses(free_bytes: int, marks: Marks, refused_before: bool) -> bool:
    """True when writes are refused: below `min`, and once that began up to `resume`."""
    return free_bytes < (marks.resume if refused_before else marks.min)
