"""The table of a benchmark: words for figures, and what one side lacks costs no other."""

from __future__ import annotations

import pytest

from tests.benchmarks.figures import Rounds, in_words, table


@pytest.mark.parametrize(
    ("figure", "words"),
    [
        ("records_per_s", "records/s"),
        ("broker_cpu_us_per_record", "broker CPU µs/record"),
        ("p50_ms", "p50 ms"),
        ("rss_mb_of_a_broker", "RSS MB of a broker"),
        ("cpu_percent", "CPU %"),
        ("mb_per_s", "MB/s"),
        ("s", "s"),
    ],
)
def test_figures_in_words(figure: str, words: str) -> None:
    assert in_words(figure) == words


def test_a_part_that_fails_on_one_side_costs_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    rounds = Rounds(["edge-broker", "Kafka"])
    for name, rates in (("edge-broker", (10.0, 30.0)), ("Kafka", (5.0, 15.0))):
        for rate in rates:
            figures = rounds.begin(name)
            with rounds.part(name, "produce"):
                figures["produce"] = {"records_per_s": rate}
            with rounds.part(name, "pause"):
                if name == "Kafka":
                    raise TimeoutError("each broker leads its share: not within 240 s\nmore")
                figures["pause"] = {"median_ms": 400.0}
    assert table(rounds.medians()).splitlines()[2:] == [
        "| produce, records/s | 20 | 10 | 2.00 |",
        "| pause, median ms | 400 | – | – |",
    ]
    assert rounds.finish() == 1
    told = capsys.readouterr()
    assert told.out.splitlines() == [
        f"not measured: Kafka, round {number}: pause: each broker leads its share: not within 240 s"
        for number in (1, 2)
    ]
    assert "TimeoutError" in told.err


def test_a_row_that_the_first_side_lacks_is_shown() -> None:
    assert table({"a": {}, "b": {"row": {"s": 1.0}}}).splitlines()[2:] == ["| row, s | – | 1 | – |"]


def test_all_that_was_measured_ends_well() -> None:
    assert Rounds(["a"]).finish() == 0
