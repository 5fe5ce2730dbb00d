"""The demo waits for what goes on, however slow, and calls nothing lost that is only slow."""

from __future__ import annotations

from tests.e2e.accounting import TopicAccount, exit_status
from tests.e2e.closing import verdict
from tests.e2e.patience import PAUSE_S_MIN, PAUSES, WHOLE_S_MAX, Patience


def _row(**faults: int) -> TopicAccount:
    names = ("produced", "on_edge", "mirrored", "pending", "lost", "lost_before_edge", "vanished")
    counts = dict.fromkeys((*names, "duplicated_on_edge", "duplicated_by_mirror", "order_violations"), 0)
    return TopicAccount(
        "t", acked=None, acked_by_broker=None, latency_p50_ms=None, latency_p99_ms=None, **counts | faults
    )


def test_a_slow_start_makes_patient() -> None:
    patience = Patience(0)
    patience.saw("batch 1", 200)
    patience.begin(300)
    assert patience.pause_s == PAUSES * 200
    assert not patience.ran_out(300 + PAUSES * 200)
    assert "stood still for 601 s; its longest pause before was 200 s" in patience.ran_out(301 + PAUSES * 200)


def test_what_goes_on_is_waited_for_beyond_any_single_pause() -> None:
    patience = Patience(0)
    patience.begin(0)
    for at in range(0, int(WHOLE_S_MAX), 100):
        patience.saw(at, at)
        assert not patience.ran_out(at + 99)
    assert "still goes on after 1801 s" in patience.ran_out(WHOLE_S_MAX + 1)


def test_what_never_moves_is_given_up() -> None:
    patience = Patience(0)
    patience.begin(10)
    patience.saw(None, 50)
    assert not patience.ran_out(10 + PAUSE_S_MIN)
    assert patience.ran_out(11 + PAUSE_S_MIN)


def test_slow_is_not_lost() -> None:
    slow = ["Spark has not passed the end of readings: it stood still"]
    assert exit_status([_row()], [], slow) == (3, [])
    text = verdict([], slow)
    assert "FAILED" not in text
    assert "Slow, not lost" in text
    assert slow[0] in text


def test_a_loss_is_a_failure_however_slow_it_was() -> None:
    status, faults = exit_status([_row(lost=1)], [], ["slow"])
    assert status == 1
    assert verdict(faults, ["slow"]).startswith("FAILED:\n  - t: 1 acked records missing\n  - slow")
    assert exit_status([_row()], ["spark died"], ["slow"])[0] == 1
    assert exit_status([_row()]) == (0, [])
    assert verdict([]).startswith("OK:")
