"""The syncer's state table, event by event."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any, cast

import pytest

from edge_broker.network.dispatch.syncer import Syncer
from edge_broker.storage.files.atomic_files import temporary_name
from edge_broker.storage.files.write_throttle import WriteThrottle
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.recovery.dirty_markers import FILES, InUse
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.testing.loop import Loop
from edge_broker.testing.site import make_topic
from edge_broker.testing.worker import HandWorker
from tests.support.storage import append, batch, open_store

MARKS = (*FILES, temporary_name("", FILES[1])[1:])


class Bench:
    """A syncer over real logs; `told` is what it said of them: partition and synced end."""

    def __init__(self, interval_min_ms: int = 0, partitions: int = 3) -> None:
        self.disk = SimulatedDisk(1)
        self.store: LogStore = open_store(self.disk)
        self.logs = make_topic(self.store, partitions=partitions).partitions
        self.loop = Loop()
        self.worker = HandWorker(self.loop, "disk")
        self.told: list[tuple[int, int]] = []
        self.syncer = Syncer(
            cast(Any, self.loop),
            cast(Any, self.worker),
            self.store.group_commit,
            interval_min_ms,
            self.moved,
            WriteThrottle(),
            self.store.in_use,
        )
        self.syncs: list[str] = []
        self.marks_fail = False
        self.disk.fault = self.note

    def moved(self, logs: Sequence[PartitionLog]) -> None:
        self.told += [(log.partition, log.synced_end.offset) for log in logs]

    def note(self, kind: str, path: str, size: int) -> None:
        if kind == "datasync":
            self.syncs.append(path.split("/")[2])
        if kind == "datasync" and path.rsplit("/", maxsplit=1)[-1] in MARKS and self.marks_fail:
            raise OSError(errno.EIO, "broken", path)

    def write(self, *numbers: int) -> None:
        for number in numbers:
            append(self.logs[number], batch())

    def write_and_sync_soon(self, number: int) -> None:
        self.write(number)
        self.syncer.sync_soon(self.logs[number])

    def begin_round(self, number: int) -> None:
        self.write_and_sync_soon(number)
        self.loop.run()

    def round_in(self, ms: int) -> None:
        self.loop.advance(ms - 1)
        assert not self.worker
        self.loop.advance(1)
        self.worker.step()

    def write_and_sync_later(self, number: int) -> None:
        self.write(number)
        self.syncer.sync_later(self.logs[number])


def test_one_round_serves_everybody_who_wants_it_in_one_turn() -> None:
    bench = Bench()
    bench.write(0, 1, 2)
    for number in (0, 1, 0, 2, 1):
        bench.syncer.sync_soon(bench.logs[number])
    assert bench.syncer.busy
    bench.loop.run()
    assert len(bench.worker) == 1
    bench.worker.step()
    assert bench.told == [(0, 1), (1, 1), (2, 1)]
    assert bench.syncs == ["t-0", "t-1", "t-2"]
    assert (bench.syncer.rounds, bench.syncer.busy) == (1, False)


def test_what_comes_during_a_round_is_in_the_next_and_no_third_follows() -> None:
    bench = Bench()
    bench.begin_round(0)
    bench.write(0, 1)
    bench.syncer.sync_soon(bench.logs[0])
    bench.syncer.sync_soon(bench.logs[1])
    assert len(bench.worker) == 1
    bench.worker.step()
    assert bench.told == [(0, 1)]  # the flush did not cover what came after it
    assert len(bench.worker) == 1
    bench.worker.step()
    assert bench.told == [(0, 1), (0, 2), (1, 1)]
    assert not bench.worker
    assert not bench.syncer.busy


def test_nothing_unsynced_makes_no_round() -> None:
    bench = Bench()
    bench.syncer.sync_soon(bench.logs[0])
    bench.loop.run()
    assert not bench.worker
    assert not bench.syncer.busy
    bench.begin_round(0)
    assert len(bench.worker) == 1


def test_later_is_within_flush_ms_and_counts_from_the_first_write() -> None:
    bench = Bench()
    bench.write_and_sync_later(0)
    bench.loop.advance(600)
    bench.write_and_sync_later(0)
    bench.round_in(400)
    assert bench.told == [(0, 2)]


def test_soon_takes_the_place_of_later() -> None:
    bench = Bench()
    bench.write_and_sync_later(0)
    bench.syncer.sync_soon(bench.logs[0])
    bench.loop.run()
    bench.worker.step()
    bench.loop.advance(5000)
    assert bench.syncer.rounds == 1
    assert not bench.worker


def test_a_deleted_log_is_neither_synced_soon_nor_later() -> None:
    bench = Bench()
    bench.write(0, 1)
    bench.syncer.sync_later(bench.logs[0])
    bench.syncer.sync_soon(bench.logs[1])
    bench.syncer.forget(bench.logs[0])
    bench.syncer.forget(bench.logs[1])
    bench.loop.advance(5000)
    assert bench.syncs == []
    assert not bench.syncer.busy


def test_the_shortest_interval_lies_between_the_starts_of_rounds() -> None:
    bench = Bench(interval_min_ms=500)
    bench.begin_round(0)
    assert len(bench.worker) == 1  # the first does not wait
    bench.loop.advance(100)
    bench.worker.step()
    bench.write_and_sync_soon(0)
    bench.loop.advance(200)
    bench.write_and_sync_soon(1)
    bench.round_in(200)
    assert bench.told == [(0, 1), (0, 2), (1, 1)]
    assert bench.syncer.rounds == 2


def test_hurry_begins_the_waiting_round_at_once_and_lets_no_other_wait() -> None:
    bench = Bench(interval_min_ms=60_000)
    bench.syncer.sync_at_once()
    assert not bench.syncer.busy
    bench = Bench(interval_min_ms=60_000)
    for _ in range(2):
        bench.begin_round(0)
        if bench.worker:
            bench.worker.step()
    assert bench.told == [(0, 1)]
    bench.syncer.sync_at_once()
    bench.worker.step()
    bench.begin_round(1)
    bench.worker.step()
    assert bench.told == [(0, 1), (0, 2), (1, 1)]
    bench.loop.advance(120_000)
    assert bench.syncer.rounds == 3


@pytest.mark.parametrize("error", [OSError(errno.EIO, "broken"), RuntimeError("a bug")])
def test_a_sync_that_fails_costs_its_partition_only_and_is_never_retried(error: Exception) -> None:
    bench = Bench()

    def fault(kind: str, path: str, size: int) -> None:
        bench.note(kind, path, size)
        if kind == "datasync" and "/t-1/" in path:
            raise error

    bench.disk.fault = fault
    bench.write(0, 1, 2)
    for log in bench.logs:
        bench.syncer.sync_soon(log)
    bench.loop.run()
    bench.worker.step()
    assert bench.told == [(0, 1), (1, 0), (2, 1)]
    assert [log.fault is not None for log in bench.logs] == [False, True, False]
    bench.syncer.sync_soon(bench.logs[1])
    bench.loop.run()
    assert not bench.worker
    assert bench.syncs.count("t-1") == 1
    bench.begin_round(0)
    bench.worker.step()
    assert bench.told[-1] == (0, 2)


def test_a_log_left_to_the_kernel_is_never_due() -> None:
    bench = Bench()
    (log,) = make_topic(bench.store, "kernel", config={"flush.ms": "9223372036854775807"}).partitions
    append(log, batch())
    bench.syncs.clear()  # those of making the topic
    bench.syncer.sync_later(log)
    bench.loop.advance(86_400_000 * 2)
    assert bench.syncs == []


def marks_of(store: LogStore) -> set[int]:
    """Partitions that a start now would find in use."""
    found = InUse(store.fs, store.data_dir).read()
    assert found is not None
    return {partition for _, partition in found.keys}


def test_marks_are_written_once_a_round_beside_its_syncs() -> None:
    bench = Bench()
    bench.write(0, 1, 2)
    for log in (bench.logs[0], bench.logs[1], bench.logs[0]):
        bench.syncer.mark(log)
    bench.syncer.sync_soon(bench.logs[2])
    bench.loop.run()
    bench.syncer.mark(bench.logs[2])  # too late for this round
    bench.worker.work()
    assert not any(log.marked for log in bench.logs), "the loop does not know yet"
    bench.worker.report()
    assert [log.marked for log in bench.logs] == [True, True, False]
    assert sorted(bench.told) == [(0, 0), (1, 0), (2, 1)]
    bench.worker.step()
    assert bench.logs[2].marked
    assert len([name for name in bench.syncs if name in MARKS]) == bench.store.in_use.writes == 2
    assert (bench.syncer.rounds, marks_of(bench.store)) == (2, {0, 1, 2})
    bench.syncer.mark(bench.logs[1])
    bench.loop.run()
    assert not bench.worker


def test_a_mark_goes_after_an_idle_minute_in_which_nothing_was_unsynced() -> None:
    bench = Bench()
    bench.write(0, 1)
    for log in bench.logs[:2]:
        bench.syncer.mark(log)
    bench.syncer.sync_soon(bench.logs[0])
    bench.loop.run()
    bench.worker.step()
    for second in range(0, 120, 10):
        bench.syncer.look_at_marks()
        bench.loop.advance(10_000)
        assert bench.logs[0].marked == (second < 60)
    assert not bench.logs[0].marked
    assert bench.logs[1].marked, "its record is not synced"
    bench.worker.step()
    assert marks_of(bench.store) == {1}
    assert bench.store.in_use.writes == 2


def test_a_log_that_is_appended_to_keeps_its_mark_and_costs_no_other_write() -> None:
    bench = Bench()
    bench.syncer.mark(bench.logs[0])
    bench.loop.run()
    bench.worker.step()
    for _ in range(30):
        bench.begin_round(0)
        bench.worker.step()
        bench.syncer.look_at_marks()
        bench.loop.advance(10_000)
    assert bench.logs[0].marked
    assert bench.store.in_use.writes == 1


def test_where_marks_cannot_be_written_the_records_are_synced_instead() -> None:
    bench = Bench()
    bench.write(0)
    bench.marks_fail = True
    bench.syncer.mark(bench.logs[0])
    bench.loop.run()
    bench.worker.step()
    assert not bench.logs[0].marked
    assert bench.told == []
    bench.loop.run()
    bench.worker.step()
    assert bench.told == [(0, 1)]
    bench.marks_fail = False
    bench.syncer.mark(bench.logs[0])
    bench.loop.run()
    bench.worker.step()
    assert bench.logs[0].marked
    assert marks_of(bench.store) == {0}


def test_the_mark_of_a_deleted_topic_goes_with_the_next_write() -> None:
    bench = Bench()
    other = make_topic(bench.store, "other").partitions[0]
    for log in (bench.logs[0], other):
        bench.syncer.mark(log)
    bench.loop.run()
    bench.worker.work()
    topic = bench.store.remove_topic("t")
    bench.worker.report()
    assert not bench.logs[0].marked
    bench.store.topic_files.erase_topic(topic)
    bench.store.forget_topic(topic)
    assert len(bench.store.in_use) == 1
    bench.syncer.look_at_marks()
    bench.loop.run()
    bench.worker.step()
    assert marks_of(bench.store) == {0}
    assert len(InUse(bench.store.fs, bench.store.data_dir).read().keys) == 1  # type: ignore[union-attr]
