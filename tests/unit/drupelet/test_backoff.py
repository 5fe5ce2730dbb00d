"""Waits between attempts grow to a bound, differ from board to board, and begin again."""

from __future__ import annotations

import pytest

from drupelet.backoff import Backoff, backoff_s


def test_waits_double_up_to_the_bound() -> None:
    assert [backoff_s(attempt, 0.1, 1.0, 1.0) for attempt in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert backoff_s(10**6, 0.1, 1.0, 0.0) == 0.5


def test_a_backoff_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.random", lambda: 0.5)
    backoff = Backoff(1.0, 3.0)
    assert [backoff.next_s() for _ in range(4)] == [0.75, 1.5, 2.25, 2.25]
    backoff.reset()
    assert backoff.next_s() == 0.75
