"""Full collections wait for a calm moment, and look through nothing twice."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from edge_broker import garbage
from edge_broker.garbage import LOOKS_MAX, OLD_AFTER, Garbage


class Knot:
    """Holds itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Garbage]:
    """As in the broker, but as if enough had become old whenever it is asked."""
    threshold = gc.get_threshold()
    gc.collect()
    collector = Garbage()
    monkeypatch.setattr(garbage.gc, "get_count", lambda: (0, 0, OLD_AFTER))
    yield collector
    gc.set_threshold(*threshold)
    gc.unfreeze()


def test_old_garbage_goes_in_a_calm_moment(collector: Garbage) -> None:
    knot = Knot()
    gone = weakref.ref(knot)
    gc.collect(1)
    del knot
    gc.collect(1)
    assert gone() is not None, "it is old, and Python does not look there by itself"
    collector.look(calm=False)
    assert gone() is not None
    collector.look(calm=True)
    assert gone() is None


def test_it_is_not_put_off_for_ever(collector: Garbage) -> None:
    knot = Knot()
    gone = weakref.ref(knot)
    gc.collect(1)
    del knot
    for _ in range(LOOKS_MAX):
        collector.look(calm=False)
    assert gone() is not None
    collector.look(calm=False)
    assert gone() is None


def test_what_was_alive_is_not_looked_through_again(collector: Garbage) -> None:
    kept = [Knot() for _ in range(1000)]
    collector.look(calm=True)
    assert gc.get_freeze_count() >= len(kept)
    assert not any(isinstance(one, Knot) for one in gc.get_objects())


def test_nothing_is_done_for_little(monkeypatch: pytest.MonkeyPatch, collector: Garbage) -> None:
    monkeypatch.setattr(garbage.gc, "get_count", lambda: (0, 0, OLD_AFTER - 1))
    frozen = gc.get_freeze_count()
    kept = [Knot() for _ in range(1000)]
    collector.look(calm=True)
    assert gc.get_freeze_count() == frozen, len(kept)
