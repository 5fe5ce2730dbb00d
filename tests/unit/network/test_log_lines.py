"""Lines that clients can bring about are bounded, and what is left out is summed though nothing else comes."""

from __future__ import annotations

import pytest

from edge_broker.network.log_lines import LINES_MAX, WINDOW_S, LimitedLog
from edge_broker.testing.loop import Loop

WINDOW_MS = WINDOW_S * 1000


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def log(loop: Loop) -> LimitedLog:
    return LimitedLog(loop)


def flood(log: LimitedLog, event: str, lines: int, level: str = "error") -> None:
    for number in range(lines):
        log.line(level, event, number=number)


def said(capsys: pytest.CaptureFixture[str], event: str) -> list[str]:
    return [line for line in capsys.readouterr().err.splitlines() if f" {event} " in line]


def test_a_flood_is_summed_at_the_window_s_end_though_nothing_else_comes(
    loop: Loop, log: LimitedLog, capsys: pytest.CaptureFixture[str]
) -> None:
    flood(log, "cluster_step_failed", 100)
    assert len(said(capsys, "cluster_step_failed")) == LINES_MAX
    loop.advance(WINDOW_MS)
    (line,) = said(capsys, "lines_summed")
    assert f"of=cluster_step_failed left_out={100 - LINES_MAX} seconds=10.0" in line
    assert " error " in line, "as its lines"
    loop.advance(10 * WINDOW_MS)
    assert not said(capsys, "lines_summed")


@pytest.mark.parametrize("lines", [1, LINES_MAX])
def test_what_was_written_whole_needs_no_sum(
    loop: Loop, log: LimitedLog, lines: int, capsys: pytest.CaptureFixture[str]
) -> None:
    flood(log, "replica_link", lines)
    loop.advance(WINDOW_MS)
    assert len(capsys.readouterr().err.splitlines()) == lines


def test_each_event_has_a_bound_and_a_sum_of_its_own(
    loop: Loop, log: LimitedLog, capsys: pytest.CaptureFixture[str]
) -> None:
    flood(log, "one", LINES_MAX + 1, "warning")
    flood(log, "other", LINES_MAX + 2)
    loop.advance(WINDOW_MS)
    sums = said(capsys, "lines_summed")
    assert ["of=one left_out=1 " in sums[0], "of=other left_out=2 " in sums[1]] == [True, True]
    flood(log, "one", 1)
    assert len(said(capsys, "one")) == 1, "the next window begins with none"


def test_a_flood_over_two_windows_is_summed_twice(
    loop: Loop, log: LimitedLog, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        flood(log, "one", LINES_MAX + 7)
        loop.advance(WINDOW_MS)
    text = capsys.readouterr().err
    assert text.count("left_out=7 ") == 2
    assert text.count(" one ") == 2 * LINES_MAX


def test_a_stop_in_the_middle_of_a_window_writes_its_sums(
    loop: Loop, log: LimitedLog, capsys: pytest.CaptureFixture[str]
) -> None:
    flood(log, "one", LINES_MAX + 1)
    loop.advance(WINDOW_MS / 2)
    log.end_window()
    (line,) = said(capsys, "lines_summed")
    assert "left_out=1 seconds=5.0" in line
    log.end_window()
    loop.advance(WINDOW_MS)
    assert not capsys.readouterr().err
