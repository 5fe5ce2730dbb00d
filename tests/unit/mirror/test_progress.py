"""Rates and lags beside the lanes, by a clock that is an argument."""

from __future__ import annotations

import pytest

from kafka_wire.partitions import TopicPartition
from mirror.partition.stream import PartitionStream
from mirror.status.rates import Progress

TP = TopicPartition("readings", 0)


def test_a_rate_comes_at_once_and_goes_with_time():
    progress, lane = Progress(), PartitionStream(TP, "lab.readings", {})
    progress.tick(100.0)
    progress.records_acked(lane, 500, 50_000)
    progress.tick(101.0)
    pace = progress.of(TP)
    assert (pace.records_s, pace.bytes_s) == (500, 50_000)
    for second in range(102, 300):
        progress.tick(float(second))
    assert (pace.records_s, pace.bytes_s) == (0, 0)
    assert not progress._moving


def test_a_lag_is_behind_since_it_was_seen_and_shrinks_by_what_goes():
    progress, lane = Progress(), PartitionStream(TP, "lab.readings", {})
    progress.tick(0.0)
    progress.note_lag(lane, 100, 1.0)
    progress.tick(1.0)
    assert progress.of(TP).shrinks_s == -100
    for second in range(2, 12):
        progress.note_lag(lane, 100 - 10 * (second - 1), float(second))
        progress.tick(float(second))
        assert progress.of(TP).behind_since == (1.0 if second < 11 else None)
    for second in range(12, 40):
        progress.records_acked(lane, 10, 10)
        progress.note_lag(lane, 1000 - 10 * second, float(second))
        progress.tick(float(second))
    assert progress.of(TP).shrinks_s == pytest.approx(10, abs=2)
    progress.forget(TP)
    assert progress.of(TP).shrinks_s == 0
