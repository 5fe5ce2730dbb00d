"""Partitions in trouble of their own wait longer each time, and start again from the shortest wait."""

from __future__ import annotations

from dataclasses import replace

from mirror.replication import backoffs
from mirror.replication.backoffs import PartitionBackoffs, new_backoff
from tests.unit.mirror.replication.parts import CONFIG, TP, Problems, new_stream

SLOW = replace(CONFIG, backoff_max_ms=60_000)


def test_a_backoff_grows_to_the_key():
    backoff = new_backoff(replace(CONFIG, backoff_max_ms=400))
    waits = [backoff.next_s() for _ in range(20)]
    assert max(waits) <= 0.4
    assert waits[0] <= 2 * backoffs.BACKOFF_FIRST_S


def test_a_partition_waits_and_is_named_until_it_is_read(monkeypatch):
    monkeypatch.setattr(backoffs.time, "monotonic", lambda: 1000.0)
    problems, stream = Problems(), new_stream()
    waits = PartitionBackoffs(SLOW, problems.report)
    ends = []
    for _ in range(8):
        waits.back_off(stream, "CORRUPT_MESSAGE")
        ends.append(stream.rest_until - 1000.0)
    assert 0 < ends[0] < ends[-1]
    assert problems == {"readings-0 source": "CORRUPT_MESSAGE"}
    waits.end(stream)
    assert problems == {}
    assert not waits.by_partition


def test_a_dropped_partition_starts_again_from_the_shortest_wait(monkeypatch):
    monkeypatch.setattr(backoffs.time, "monotonic", lambda: 1000.0)
    stream = new_stream()
    waits = PartitionBackoffs(SLOW, Problems().report)
    for _ in range(10):
        waits.back_off(stream, "x")
    long = stream.rest_until
    waits.forget(TP)
    waits.forget(TP)
    waits.back_off(stream, "x")
    assert stream.rest_until < long
