"""The table of `make bench-change`: a figure of whole milliseconds may be 0 before, and has no ratio then."""

from __future__ import annotations

from tests.benchmarks.change import Pair, Row, is_wide, lines_of


def _row(*figures: str) -> Row:
    return Row("end to end", lambda *_: {}, figures)


def _pairs(figure: str, before: float) -> list[Pair]:
    return [{"here": {figure: 1.0}, "before": {figure: before}}] * 3


def test_a_figure_that_was_0_before_has_no_ratio() -> None:
    assert lines_of(_row("p50_ms"), _pairs("p50_ms", 0.0)) == ["| end to end: p50_ms | 1 | 0 |  |  | 3 |  |"]


def test_a_ratio_and_its_interval() -> None:
    assert lines_of(_row("p99_ms"), _pairs("p99_ms", 2.0)) == [
        "| end to end: p99_ms | 1 | 2 | 0.500 | 0.500 to 0.500 | 3 |  |"
    ]


def test_a_rate_that_was_0_before_asks_for_no_more_pairs() -> None:
    assert not is_wide(_row("records_per_s"), _pairs("records_per_s", 0.0))
