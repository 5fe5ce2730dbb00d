"""What the target surely knows again: young by its own clock, and sent for the first time a moment ago."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from edge_broker.protocol.record_batch import build_batch
from mirror.client.append_time_clock import TargetClock, boot_s
from mirror.producer.failures.retry_window import YOUNG_S, may_be_sent_again

NOW_MS, NOW_S = 1_790_000_000_000, 5000.0
YOUNG_MS = int(YOUNG_S * 1000)


def batch(*, lost: int = 1, age_s: float = 60.0, timestamp_ms: int = NOW_MS - 60_000) -> Any:
    packed = SimpleNamespace(batch=build_batch([(None, b"x")], timestamp_ms=timestamp_ms))
    return SimpleNamespace(lost=lost, posted_s=NOW_S - age_s, packed=packed)


@pytest.mark.parametrize(
    ("batches", "may"),
    [
        ([], True),
        ([batch()], True),
        ([batch(age_s=YOUNG_S, timestamp_ms=NOW_MS - YOUNG_MS)], True),
        ([batch(timestamp_ms=NOW_MS + 10**12)], True),  # a board's clock goes ahead: it is forgotten later
        ([batch(lost=2), batch(lost=3)], True),  # by a second connection that had died as well
        ([batch(age_s=YOUNG_S + 1)], False),  # a topic with LogAppendTime ages it by this
        ([batch(timestamp_ms=NOW_MS - YOUNG_MS - 1)], False),
        ([batch(timestamp_ms=-1)], False),
        ([batch(), batch(timestamp_ms=0)], False),
        ([batch(), batch(lost=0, timestamp_ms=0)], True),  # the second was not sent yet
    ],
)
def test_young_ones_are_known_again(batches: list[Any], may: bool) -> None:
    assert may_be_sent_again(batches, NOW_MS, NOW_S) is may


def test_without_the_targets_clock_nothing_is_sure() -> None:
    assert not may_be_sent_again([batch()], None, NOW_S)
    assert may_be_sent_again([batch(lost=0)], None, NOW_S)


def test_the_targets_clock_is_told_by_what_it_has_stamped(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, shown = TargetClock(), [10.0]
    monkeypatch.setattr("time.clock_gettime", lambda _: shown[0])
    assert boot_s() == 10.0
    clock.note_time(-1, 10.0)
    assert clock.now_ms is None
    clock.note_time(NOW_MS, 9.0)
    assert clock.now_ms == NOW_MS + 1000  # it was asked a second ago, and may have stamped then
    shown[0] = 3610.0
    clock.note_time(-1, 3600.0)
    assert clock.now_ms == NOW_MS + 3_601_000
