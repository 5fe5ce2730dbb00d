"""The eviction plan over random disks: what goes, in which order, and that nothing goes too early."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_broker.storage.retention.eviction_plan import (
    EVICTED,
    EXPIRED,
    PASSED,
    Marks,
    PartitionView,
    Plan,
    SegmentView,
    marks_of,
    plan,
    refuses,
    segment_bytes_max,
    stage_of,
)

MIB = 1 << 20


@st.composite
def partitions(draw: st.DrawFn, number: int) -> PartitionView:
    """A partition whose age and expiry rise as its offsets fall, as real ones' do."""
    count = draw(st.integers(0, 6))
    sizes = draw(st.lists(st.integers(1, 1000), min_size=count, max_size=count))
    expired = draw(st.integers(0, count))
    age = draw(st.integers(0, 50))
    segments = [SegmentView(at * 10, (at + 1) * 10, size, age + at, at < expired) for at, size in enumerate(sizes)]
    last = SegmentView(count * 10, count * 10 + 7, draw(st.integers(1, 1000)), age + count, expired=False)
    return PartitionView(
        f"t{number}",
        0,
        draw(st.integers(0, 9)),
        draw(st.booleans()),
        draw(st.integers(0, (count + 1) * 10)),
        segments,
        draw(st.sampled_from((last, None))),
    )


@st.composite
def disks(draw: st.DrawFn) -> list[PartitionView]:
    return [draw(partitions(number)) for number in range(draw(st.integers(0, 5)))]


def taken(views: Sequence[PartitionView], found: Plan) -> list[tuple[int, SegmentView]]:
    """Every segment that goes, in order, the active ones last."""
    gone = [0] * len(views)
    order = []
    for step in found.steps:
        for segment in views[step.view].segments[gone[step.view] : gone[step.view] + step.segments]:
            order.append((step.view, segment))
        gone[step.view] += step.segments
        assert gone[step.view] <= len(views[step.view].segments)
    for at in found.rolls:
        assert gone[at] == len(views[at].segments), "an active segment goes behind all closed ones"
        active = views[at].active
        assert active is not None
        order.append((at, active))
    return order


def left(views: Sequence[PartitionView], found: Plan) -> list[tuple[int, SegmentView]]:
    """The oldest segment that stays in each partition."""
    gone = [0] * len(views)
    for step in found.steps:
        gone[step.view] += step.segments
    fronts = []
    for at, view in enumerate(views):
        rest = [*view.segments[gone[at] :], *([view.active] if view.active and at not in found.rolls else [])]
        fronts += [(at, rest[0])] if rest else []
    return fronts


@given(disks(), st.integers(-10, 8000))
def test_enough_goes_or_all_that_can_and_no_segment_more(views: list[PartitionView], wanted: int) -> None:
    found = plan(views, wanted)
    order = taken(views, found)
    assert found.bytes == sum(segment.bytes for _, segment in order)
    if found.bytes < wanted:
        assert not left(views, found), "something could still go"
    else:
        largest_last = max((segment.bytes for _, segment in order), default=0)
        assert not order or found.bytes - largest_last < wanted
    assert not order or wanted > 0


@given(disks(), st.integers(1, 8000))
def test_nothing_unpassed_goes_while_something_safe_is_left(views: list[PartitionView], wanted: int) -> None:
    found = plan(views, wanted)
    stages = [stage_of(views[at], segment) for at, segment in taken(views, found)]
    assert found.stage == max(stages, default=0)
    for at, segment in left(views, found):
        assert stage_of(views[at], segment) >= found.stage


@given(disks(), st.integers(1, 8000))
def test_no_higher_priority_goes_before_a_lower_one(views: list[PartitionView], wanted: int) -> None:
    found = plan(views, wanted)
    evicted = [
        (views[at].priority, segment) for at, segment in taken(views, found) if stage_of(views[at], segment) == 3
    ]
    highest = max((priority for priority, _ in evicted), default=-1)
    for at, segment in left(views, found):
        if stage_of(views[at], segment) == EVICTED:
            assert views[at].priority >= highest


@given(disks(), st.integers(1, 8000))
def test_within_a_rung_and_a_priority_the_oldest_goes_first(views: list[PartitionView], wanted: int) -> None:
    found = plan(views, wanted)
    gone = taken(views, found)
    for at, segment in left(views, found):
        stage, priority = stage_of(views[at], segment), views[at].priority
        for other, earlier in gone:
            if stage_of(views[other], earlier) == stage and (stage < EVICTED or views[other].priority == priority):
                assert earlier.written_age_ms <= segment.written_age_ms


@given(disks(), st.integers(1, 8000))
def test_a_bound_on_the_rung_is_kept(views: list[PartitionView], wanted: int) -> None:
    found = plan(views, wanted, stage_max=PASSED)
    assert all(stage_of(views[at], segment) <= PASSED for at, segment in taken(views, found))


def test_who_names_no_group_has_nothing_passed() -> None:
    fresh, old = SegmentView(0, 10, 5, 1, expired=False), SegmentView(0, 10, 5, 1, expired=True)
    nobody = PartitionView("t", 0, 5, False, 99, [fresh])
    somebody = PartitionView("t", 0, 5, True, 10, [fresh])
    assert [stage_of(nobody, fresh), stage_of(nobody, old)] == [EVICTED, EXPIRED]
    assert [stage_of(somebody, fresh), stage_of(somebody, old)] == [PASSED, EXPIRED]
    assert stage_of(somebody._replace(passed_offset=9), old) == EVICTED


@pytest.mark.parametrize(
    ("total", "marks"),
    [
        (64 * MIB, Marks(int(6.4 * MIB), int(3.2 * MIB))),
        (1024 * MIB, Marks(107374182, 53687091)),
        (32 << 30, Marks(1 << 30, 256 * MIB)),
    ],
)
def test_marks_fit_small_and_large_disks(total: int, marks: Marks) -> None:
    assert marks_of(total) == marks


def test_marks_that_are_given_count_and_never_cross() -> None:
    assert marks_of(64 * MIB, 100, 50) == Marks(100, 50)
    assert marks_of(64 * MIB, 100, 5000) == Marks(5000, 5000)
    assert marks_of(64 * MIB, 0, 0) == Marks(0, 0)


@given(st.integers(0, 1 << 40), st.integers(-1, 1 << 40), st.integers(-1, 1 << 40), st.integers(0, 1 << 40))
def test_refusing_ends_above_where_it_began(total: int, low: int, minimum: int, free: int) -> None:
    marks = marks_of(total, low, minimum)
    assert marks.min <= marks.resume <= marks.low
    assert refuses(free, marks, refused_before=False) <= refuses(free, marks, refused_before=True)
    assert not refuses(marks.low, marks, refused_before=True)


@pytest.mark.parametrize(
    ("total", "budget", "expected"),
    [(64 * MIB, -1, 2 * MIB), (32 << 30, -1, 1 << 30), (32 << 30, 8 * MIB, MIB), (1 * MIB, -1, 256 << 10)],
)
def test_segments_are_small_against_the_disk_and_the_budget(total: int, budget: int, expected: int) -> None:
    assert segment_bytes_max(total, budget) == expected
