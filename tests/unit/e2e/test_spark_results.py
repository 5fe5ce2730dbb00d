"""What Spark should have found is computed right, and a Parquet footer is read right.

Invariants: every copy counts in its window; a window that lacks a reading, has one too many or another figure is not
equal; the golden files were written by Spark 4.0.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.spark_results import WindowAgreement, complete_files, latest, parquet_rows, windows_agree

GOLDEN = Path(__file__).parents[2] / "golden"
READINGS = [
    {"device": "a", "time_ms": 10_000, "value": 1.0},
    {"device": "a", "time_ms": 19_999, "value": 4.0},
    {"device": "a", "time_ms": 20_000, "value": 9.0},
    {"device": "b", "time_ms": 15_000, "value": 2.0},
]
WINDOWS: dict[str, dict[str, Any]] = {
    "a|10000": {"count": 2, "min": 1.0, "max": 4.0, "mean": 2.5},
    "a|20000": {"count": 1, "min": 9.0, "max": 9.0, "mean": 9.0},
    "b|10000": {"count": 1, "min": 2.0, "max": 2.0, "mean": 2.0},
}


def test_equal_windows_agree() -> None:
    assert windows_agree(READINGS, WINDOWS) == WindowAgreement(expected=3, equal=3)


@pytest.mark.parametrize("figure", ["count", "min", "max", "mean"])
def test_a_window_with_another_figure_does_not(figure: str) -> None:
    wrong = WINDOWS | {"a|10000": WINDOWS["a|10000"] | {figure: 3}}
    assert windows_agree(READINGS, wrong) == WindowAgreement(expected=3, equal=2)


def test_a_missing_window_does_not() -> None:
    fewer = {key: window for key, window in WINDOWS.items() if key != "b|10000"}
    assert windows_agree(READINGS, fewer) == WindowAgreement(expected=3, equal=2)


def test_the_last_value_per_key_stays() -> None:
    assert latest([("a", 1), ("b", 2), ("a", 3)]) == {"a": 3, "b": 2}


@pytest.mark.parametrize(("name", "rows"), [("spark-1-row", 1), ("spark-0-rows", 0)])
def test_rows_of_parquet_files(name: str, rows: int) -> None:
    assert parquet_rows(GOLDEN / f"{name}.parquet") == rows


def test_only_files_of_batches_with_a_mark_are_complete(tmp_path: Path) -> None:
    assert complete_files(tmp_path) == []
    files = [tmp_path / f"batch={number}/date=2025-11-24/part-0.parquet" for number in (1, 2)]
    for file in files:
        file.parent.mkdir(parents=True)
        file.write_bytes(b"PAR1")
    (tmp_path / "batch=1/_SUCCESS").touch()
    assert complete_files(tmp_path) == files[:1]


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    cut = tmp_path / "cut.parquet"
    cut.write_bytes((GOLDEN / "spark-1-row.parquet").read_bytes()[:-3])
    with pytest.raises(ValueError, match="not a Parquet file"):
        parquet_rows(cut)
