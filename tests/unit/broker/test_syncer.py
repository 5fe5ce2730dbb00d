"""The syncer's state table, event by event."""

from __future__ import annotations

import errno
from typing import Any, cast

import pytest

from edge_broker.network.syncer import Syncer
from edge_broker.storage.log import PartitionLog
from edge_broker.storage.pace import Pace
from edge_broker.storage.store import LogStore
from tests.simulation.disk import SimulatedDisk
from tests.support.broker import HandWorker, Loop
from tests.support.storage import append, batch, make_topic, open_store


class Bench:
    """A syncer over real logs; `told` is what it said of them: topic-partition and high watermark."""

    def __init__(self, interval_min_ms: int = 0, partitions: int = 3) -> None:
        self.disk = SimulatedDisk(1)
        self.store: LogStore = open_store(self.disk)
        self.logs = make_topic(self.store, partitions=partitions).partitions
        self.loop = Loop()
        self.worker = HandWorker(self.loop)
        self.told: list[tuple[int, int]] = []
        self.syncer = Syncer(
            cast(Any, self.loop), cast(Any, self.worker), self.store.rounds, interval_min_ms, self.moved, Pace()
        )
        self.syncs: list[str] = []
        self.disk.fault = self.note

    def moved(self, log: PartitionLog) -> None:
        self.told.append((log.partition, log.high_watermark))

    def note(self, kind: str, path: str, size: int) -> None:
        if kind == "datasync":
            self.syncs.append(path.split("/")[2])

    def write(self, *numbers: int) -> None:
        for number in numbers:
            append(self.logs[number], batch())


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
    bench.write(0)
    bench.syncer.sync_soon(bench.logs[0])
    bench.loop.run()
    bench.write(0, 1)
    bench.syncer.sync_soon(bench.logs[0])
    bench.syncer.sync_soon(bench.logs[1])
    assert len(bench.worker) == 1
    bench.worker.step()
    assert bench.told == [(0, 1)]  # the ticket did not cover what came after it
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
    bench.write(0)
    bench.syncer.sync_soon(bench.logs[0])
    bench.loop.run()
    assert len(bench.worker) == 1


def test_later_is_within_flush_ms_and_counts_from_the_first_write() -> None:
    bench = Bench()
    bench.write(0)
    bench.syncer.sync_later(bench.logs[0])
    bench.loop.advance(600)
    bench.write(0)
    bench.syncer.sync_later(bench.logs[0])
    bench.loop.advance(399)
    assert not bench.worker
    bench.loop.advance(1)
    bench.worker.step()
    assert bench.told == [(0, 2)]


def test_soon_takes_the_place_of_later() -> None:
    bench = Bench()
    bench.write(0)
    bench.syncer.sync_later(bench.logs[0])
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
    bench.write(0)
    bench.syncer.sync_soon(bench.logs[0])
    bench.loop.run()
    assert len(bench.worker) == 1  # the first does not wait
    bench.loop.advance(100)
    bench.worker.step()
    bench.write(0)
    bench.syncer.sync_soon(bench.logs[0])
    bench.loop.advance(200)
    bench.write(1)
    bench.syncer.sync_soon(bench.logs[1])
    bench.loop.advance(199)
    assert not bench.worker
    bench.loop.advance(1)
    bench.worker.step()
    assert bench.told == [(0, 1), (0, 2), (1, 1)]
    assert bench.syncer.rounds == 2


def test_hurry_begins_the_waiting_round_at_once_and_lets_no_other_wait() -> None:
    bench = Bench(interval_min_ms=60_000)
    bench.syncer.hurry()
    assert not bench.syncer.busy
    bench = Bench(interval_min_ms=60_000)
    for _ in range(2):
        bench.write(0)
        bench.syncer.sync_soon(bench.logs[0])
        bench.loop.run()
        if bench.worker:
            bench.worker.step()
    assert bench.told == [(0, 1)]
    bench.syncer.hurry()
    bench.worker.step()
    bench.write(1)
    bench.syncer.sync_soon(bench.logs[1])
    bench.loop.run()
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
    bench.write(0)
    bench.syncer.sync_soon(bench.logs[0])
    bench.loop.run()
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
