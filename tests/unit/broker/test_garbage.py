"""The collector looks in calm moments, when there is much, and not twice at what is alive."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from edge_broker import gc_policy
from edge_broker.gc_policy import LOOK_S, OBJECTS_MAX, OBJECTS_MIN, WHOLE_S, Garbage


class Knot:
    """Holds itself."""

    def __init__(self) -> None:
        self.me = self


class Count:
    """So many more objects than the last time, as the collector says."""

    objects = OBJECTS_MIN


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Count]]:
    monkeypatch.setattr(gc_policy.gc, "get_count", lambda: (Count.objects, 0, 0))
    Count.objects = OBJECTS_MIN
    yield Count
    gc.unfreeze()
    gc.enable()


def knot() -> weakref.ref[Knot]:
    """One that nobody else holds."""
    return weakref.ref(Knot())


@pytest.mark.parametrize(
    ("objects", "calm", "goes"),
    [
        (OBJECTS_MIN, True, True),
        (OBJECTS_MIN, False, False),
        (OBJECTS_MIN - 1, True, False),
        (OBJECTS_MAX, False, True),
    ],
)
def test_garbage_goes_in_a_calm_moment_or_when_there_is_very_much(
    count: type[Count], objects: int, calm: bool, goes: bool
) -> None:
    collector, gone = Garbage(), knot()
    count.objects = objects
    collector.collect_if_due(calm=calm)
    assert (gone() is None) is goes


def test_what_is_alive_is_not_looked_through_again_until_a_day_is_over(count: type[Count]) -> None:
    collector = Garbage()
    kept = [Knot() for _ in range(1000)]
    collector.collect_if_due(calm=True)
    assert not any(isinstance(one, Knot) for one in gc.get_objects())
    gone = weakref.ref(kept[0])
    kept.clear()
    looks = int(WHOLE_S / LOOK_S) - 2
    for _ in range(looks):
        count.objects = 0
        collector.collect_if_due(calm=True)
    assert gone() is not None
    collector.collect_if_due(calm=True)
    assert gone() is None


def test_the_collector_counts_on_when_it_is_off() -> None:
    gc.collect()
    gc.disable()
    try:
        before = gc.get_count()[0]
        kept = [[number] for number in range(5000)]
        assert gc.get_count()[0] - before >= len(kept)
    finally:
        gc.enable()
