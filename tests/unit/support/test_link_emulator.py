"""A direction of the emulated link: rate, delay, queue and loss, by a clock that the test turns."""

from __future__ import annotations

import random

import pytest

from tests.support.link_emulator import Direction


def direction(*, loss: float = 0.0, rate_bps: float = 8000, queue_bytes: float = 2500) -> Direction:
    return Direction(0.5, loss, rate_bps, queue_bytes, random.Random(1))


def test_frames_wait_for_those_before_them_and_travel() -> None:
    link = direction()
    assert [link.arrival(1000, 0.0), link.arrival(1000, 0.0)] == [1.5, 2.5]
    assert link.arrival(1000, 10.0) == 11.5  # nobody was before it


def test_a_full_queue_drops_what_comes() -> None:
    link = direction()
    assert [link.arrival(1000, 0.0) for _ in range(4)] == [1.5, 2.5, 3.5, None]
    assert link.arrival(1000, 1.0) == 4.5


def test_without_a_rate_only_the_delay_is_left() -> None:
    link = direction(rate_bps=0)
    assert {link.arrival(1000, 2.0) for _ in range(100)} == {2.5}


def test_as_many_are_lost_as_was_asked_for() -> None:
    link = direction(loss=0.02, rate_bps=0)
    lost = sum(link.arrival(100, 0.0) is None for _ in range(10_000))
    assert lost == pytest.approx(200, abs=60)
