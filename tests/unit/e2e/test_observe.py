"""What the demo watches: journals that grow, counters that restart, Spark's checkpoints, metrics by label.

Invariants: no journal line is taken twice or half; a counter that falls is a restart, never a negative rate; a query is
where its last committed batch ended, not where a begun one will.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.e2e.observe import JournalReader, Metrics, Rates, behind, spark_positions


def test_a_journal_is_read_by_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    reader = JournalReader(path)
    reader.read()
    assert reader.lines == []
    path.write_text("P a 0 1 1\nP a 1 2")
    reader.read()
    assert reader.lines == [["P", "a", "0", "1", "1"]]
    path.write_text("P a 0 1 1\nP a 1 2 2\nA a 0 3\n")
    reader.read()
    assert reader.lines[1:] == [["P", "a", "1", "2", "2"], ["A", "a", "0", "3"]]
    assert reader.counts == {"P": 2, "A": 1}


def test_rates_survive_a_restart_of_the_counter() -> None:
    rates = Rates()
    assert rates.per_second("x", 100, 1.0) == 0.0
    assert rates.per_second("x", 150, 2.0) == 50.0
    assert rates.per_second("x", 10, 3.0) == 0.0
    assert rates.per_second("x", 30, 5.0) == 10.0


def write_batch(query: Path, batch: int, offsets: str, *, commit: bool) -> None:
    for name in ("offsets", "commits"):
        (query / name).mkdir(parents=True, exist_ok=True)
    (query / "offsets" / str(batch)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{offsets}')
    if commit:
        (query / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
        (query / "commits" / f".{batch}.crc").write_bytes(b"\x00")


def test_spark_stands_where_its_last_committed_batch_ended(tmp_path: Path) -> None:
    write_batch(tmp_path / "windows", 9, '{"readings":{"0":5,"1":7}}', commit=True)
    write_batch(tmp_path / "windows", 10, '{"readings":{"0":15,"1":17}}', commit=True)
    write_batch(tmp_path / "windows", 11, '{"readings":{"0":25,"1":27}}', commit=False)
    write_batch(tmp_path / "alarms", 0, '{"readings":{"0":1,"1":1}}', commit=False)
    assert spark_positions(tmp_path, "readings") == {"windows": {0: 15, 1: 17}, "alarms": {}}


def test_what_spark_deletes_meanwhile_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_batch(tmp_path / "windows", 0, '{"readings":{"0":5}}', commit=True)
    (tmp_path / "windows" / "batch=1" / "_temporary").mkdir(parents=True)
    scandir = os.scandir

    def scan(path: str) -> object:
        if str(path).endswith("_temporary"):
            raise FileNotFoundError(path)
        return scandir(path)

    with monkeypatch.context() as patched:  # pytest itself looks through that folder, too
        patched.setattr(os, "scandir", scan)
        assert spark_positions(tmp_path, "readings") == {"windows": {0: 5}}


def test_behind_sums_over_partitions() -> None:
    assert behind({}, {0: 3, 1: 4}) == 7
    assert behind({0: 3, 1: 1}, {0: 3, 1: 4}) == 3
    assert behind({0: 9}, {0: 3}) == 0


def test_metrics_are_summed_by_label() -> None:
    metrics = Metrics((("end", {"topic": "a"}, 1.0), ("end", {"topic": "b"}, 2.0), ("other", {}, 9.0)))
    assert metrics.total("end") == 3.0
    assert metrics.total("end", topic="b") == 2.0
    assert metrics.total("none") == 0.0
