"""Commit rounds: which way, what each costs, whose failure it was; and the measurement of the card."""

from __future__ import annotations

import errno
from collections.abc import Callable
from itertools import count

import pytest

from edge_broker import libc
from edge_broker.errors import StorageFault
from edge_broker.storage.files.filesystem import SYNCFS_HOLDS, Disk
from edge_broker.storage.files.sync_cost import BYTES_MAX, Card, Cost, describe, measure, read_card, write_card
from edge_broker.storage.log import single_node_watermark
from edge_broker.storage.log.group_commit import EACH_ROUNDS, Flush, GroupCommit
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.testing.site import make_topic
from tests.support.storage import append, batch, open_store, read_all

COSTS = (Cost(4096, 64, 900, 2000, 4000),)


def card(all_us: int) -> Card:
    return Card(COSTS, 10, 10_000, all_us)


def rounds(all_us: int | None) -> GroupCommit:
    return GroupCommit(SimulatedDisk(1), "/data", None if all_us is None else card(all_us))


@pytest.mark.parametrize(
    ("all_us", "cheaper_from"),
    [(3000, 4), (500, 2), (9999, 10), (50_000, 51), (-1, None), (None, None)],
)
def test_the_way_is_the_one_that_costs_less(all_us: int | None, cheaper_from: int | None) -> None:
    how = rounds(all_us)
    ways = [how.way(files) for files in range(1, 201)]
    expected = 201 if cheaper_from is None else cheaper_from
    assert ways == ["each"] * (expected - 1) + ["all"] * (201 - expected)


def test_a_syncfs_that_waits_for_others_is_left_alone_for_a_while() -> None:
    how = rounds(500)
    how.round_completed("all", 20, 0.05)
    assert how.way(20) == "all"
    how.round_completed("all", 20, 0.061)
    assert [how.way(20) for _ in range(EACH_ROUNDS)] == ["each"] * EACH_ROUNDS
    assert how.way(20) == "all"
    how.round_completed("each", 20, 9.0)
    assert how.way(20) == "all"


class Bench:
    """Five logs with unsynced data; `steps` are those of the round."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk(3)
        store = open_store(self.disk)
        self.logs = make_topic(store, partitions=5).partitions
        for log in self.logs:
            append(log, batch(b"x"))
        self.how = store.group_commit
        self.steps: list[str] = []
        self.disk.witness = lambda kind, _path: self.steps.append(kind)

    def run(self, way: str) -> list[PartitionLog]:
        """Run a round; the logs that failed."""
        flushes = [self.flush(log) for log in self.logs]
        faults = self.how.run(flushes, way)  # type: ignore[arg-type]
        for log, flush, fault in zip(self.logs, flushes, faults, strict=True):
            if fault is None:
                log.writer.finish_flush(flush)
                single_node_watermark.advance_high_watermark(log.state)
            else:
                log.fail(fault)
        return [log for log in self.logs if log.fault is not None]

    @staticmethod
    def flush(log: PartitionLog) -> Flush:
        flush = log.writer.begin_flush()
        assert flush is not None
        return flush


@pytest.mark.parametrize(("way", "steps"), [("each", ["datasync"] * 5), ("all", ["sync_all"])])
def test_either_way_confirms_everything(way: str, steps: list[str]) -> None:
    bench = Bench()
    assert bench.run(way) == []
    assert bench.steps == steps
    assert [log.high_watermark for log in bench.logs] == [1] * 5
    bench.disk.crash()
    store = open_store(bench.disk)
    assert [len(read_all(log)) for log in store.topics["t"].partitions] == [1] * 5


def test_the_write_out_begins_where_the_last_sync_ended() -> None:
    bench = Bench()
    bench.run("each")
    append(bench.logs[0], batch(b"y"))
    flush = bench.flush(bench.logs[0])
    assert 0 < flush.begin < flush.end.position


def test_a_failed_syncfs_costs_whoever_failed_and_no_other() -> None:
    bench = Bench()
    bench.disk.fail_writeout(bench.logs[2].state.active.path)
    assert bench.run("all") == [bench.logs[2]]
    assert bench.steps == ["sync_all"] + ["datasync"] * 5
    assert [log.high_watermark for log in bench.logs] == [1, 1, 0, 1, 1]


def test_a_syncfs_that_cannot_be_had_is_replaced() -> None:
    bench = Bench()

    def none(kind: str, path: str, size: int) -> None:
        if kind == "sync_all":
            raise OSError(errno.EOPNOTSUPP, "no", path)

    bench.disk.fault = none
    assert bench.run("all") == []
    assert [log.high_watermark for log in bench.logs] == [1] * 5


def test_a_bug_in_one_sync_costs_that_log_alone() -> None:
    bench = Bench()

    def broken(kind: str, path: str, size: int) -> None:
        if kind == "datasync" and "/t-1/" in path:
            raise KeyError("a bug")

    bench.disk.fault = broken
    assert bench.run("each") == [bench.logs[1]]
    assert "a bug" in str(bench.logs[1].fault)


# the card


class Measured:
    """A measurement on a disk whose every sync takes a known time."""

    def __init__(self, sync_s: float, fault: Callable[[str, str, int], int | None] | None = None) -> None:
        self.disk = SimulatedDisk(1)
        self.disk.make_directory("/data")
        self.now_s = 0.0
        self.written = 0
        self.syncs = 0

        def note(kind: str, path: str, size: int) -> int | None:
            if kind in ("datasync", "sync_all"):
                self.now_s += sync_s
                self.syncs += 1
            if kind == "write":
                self.written += size
            return fault(kind, path, size) if fault else None

        self.disk.fault = note
        self.card = next(one for one in measure(self.disk, "/data", lambda: self.now_s) if one is not None)


def test_what_a_quick_card_takes_is_measured_within_the_bounds() -> None:
    measured = Measured(0.001)
    assert measured.card.costs == tuple(
        Cost(size, samples, 1000, 1000, 1000) for size, samples in ((4096, 64), (65536, 16), (1 << 20, 2))
    )
    assert (measured.card.files_us, measured.card.all_us) == (10_000, 1000)
    assert measured.written <= BYTES_MAX
    assert measured.disk.names("/data") == []


def test_a_slow_card_is_asked_less_often() -> None:
    measured = Measured(0.2)
    assert [cost.samples for cost in measured.card.costs] == [3, 3, 2]
    assert measured.card.files_us == 2_000_000
    assert measured.now_s < 5


def test_a_file_system_whose_syncfs_proves_nothing_is_known() -> None:
    def none(kind: str, path: str, size: int) -> None:
        if kind == "sync_all":
            raise OSError(errno.EOPNOTSUPP, "no", path)

    measured = Measured(0.001, none)
    assert measured.card.all_us == -1
    assert "proves nothing" in describe(measured.card)[-1]


def test_a_measurement_that_fails_leaves_nothing() -> None:
    ticks = count()
    disk = SimulatedDisk(1)
    disk.make_directory("/data")

    def full(kind: str, path: str, size: int) -> None:
        if kind == "write" and next(ticks) == 70:
            raise OSError(errno.ENOSPC, "full", path)

    disk.fault = full
    with pytest.raises(OSError, match="full"):
        list(measure(disk, "/data", lambda: 0.0))
    assert disk.names("/data") == []


def test_a_card_is_kept_and_read_at_the_next_start() -> None:
    disk = SimulatedDisk(1)
    store = open_store(disk)
    assert store.group_commit.card is None
    store.directory.keep_card(card(3000))
    store.close()
    disk.kill()
    assert read_card(disk, "/data") == card(3000)
    assert open_store(disk).group_commit.card == card(3000)
    lines = describe(card(3000))
    assert lines[0] == "write and fdatasync of 4 KiB: p50 0.90 ms, p99 2.00 ms, greatest 4.00 ms (64 samples)"
    assert lines[-1] == "10 files: 10.00 ms by fdatasync of each; one syncfs: 3.00 ms"


@pytest.mark.leaves("the CRC does not match the content")
@pytest.mark.parametrize("damage", ["flip", "short"])
def test_a_damaged_card_file_is_noted_and_stops_nothing(damage: str) -> None:
    disk = SimulatedDisk(1)
    store = open_store(disk)
    write_card(disk, "/data", card(3000) if damage == "flip" else Card((), 0, 0, 0))
    store.close()
    disk.kill()
    if damage == "flip":
        disk.flip("/data/card", 60)
    else:
        disk.put("/data/card", disk.content("/data/leader-epoch"))
    store = open_store(disk)
    assert store.group_commit.card is None
    assert "/data/card" in store.recovery_notes[0]


def test_syncfs_of_the_real_disk_is_used_where_it_holds(tmp_path) -> None:
    disk = Disk()
    assert disk.lock(str(tmp_path / ".lock")) is not None
    file = disk.create(str(tmp_path / "f"))
    file.write(b"x", 0)
    file.start_writeout(0)
    with open(tmp_path / "f", "rb") as opened:
        holds = libc.file_system_type(opened.fileno()) in SYNCFS_HOLDS
    if holds:
        disk.sync_all(str(tmp_path))
    else:
        with pytest.raises(OSError, match="proves nothing"):
            disk.sync_all(str(tmp_path))
    with open("/proc/self/stat", "rb") as proc:
        assert libc.file_system_type(proc.fileno()) == 0x9FA0
    with pytest.raises(OSError, match="proves nothing"):
        disk.sync_all("/proc/self")


def test_a_real_card_is_measured(tmp_path) -> None:
    import time

    measured = [one for one in measure(Disk(), str(tmp_path), time.perf_counter) if one is not None]
    assert len(measured) == 1
    assert all(0 < cost.p50_us <= cost.p99_us <= cost.max_us for cost in measured[0].costs)
    assert list(tmp_path.iterdir()) == []


def test_storage_faults_are_no_cards() -> None:
    disk = SimulatedDisk(1)
    store = open_store(disk)
    disk.fault = lambda kind, path, _size: (_ for _ in ()).throw(OSError(errno.EIO, "broken", path))
    with pytest.raises(StorageFault, match="broken"):
        store.directory.keep_card(card(1))
