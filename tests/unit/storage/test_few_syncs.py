"""How many syncs a stop and a start ask of the disk: as many as there is something to sync, however many partitions."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest

from edge_broker.errors import StorageFault
from edge_broker.storage.log import single_node_watermark
from edge_broker.storage.log_store import LogStore
from edge_broker.testing.disk import Fault, SimulatedDisk
from edge_broker.testing.site import make_topic
from tests.support.storage import append, batch, fill, open_store, read_all, sync

PARTITIONS = 40
CONSTANT = 16  # of the store's own files, whatever partitions there are
SYNCS = ("datasync", "sync_directory", "sync_all")


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(1)


@contextmanager
def counted(disk: SimulatedDisk) -> Iterator[Counter[str]]:
    """The syncs that are asked for meanwhile; by the path too, to see whose."""
    found: Counter[str] = Counter()

    def count(step: str, path: str) -> None:
        if step in SYNCS:
            found[f"{step} {path}"] += 1

    disk.witness = count
    try:
        yield found
    finally:
        disk.witness = None


def with_records(disk: SimulatedDisk) -> LogStore:
    """A store whose partitions hold something, all of it synced and in the checkpoint."""
    store = open_store(disk)
    for log in make_topic(store, "t", PARTITIONS).partitions:
        fill(log, 3)
    store.checkpoint()
    return store


def again(disk: SimulatedDisk, store: LogStore, how: str) -> LogStore:
    if how == "stop":
        store.close()
    (disk.crash if how == "cut" else disk.kill)()
    return open_store(disk)


def test_a_stop_of_partitions_that_nobody_wrote_to_syncs_none_of_them(disk: SimulatedDisk) -> None:
    store = again(disk, with_records(disk), "stop")
    make_topic(store, "new", PARTITIONS)
    with counted(disk) as syncs:
        store.close()
    assert syncs.total() <= CONSTANT, syncs
    disk.kill()
    store = open_store(disk)
    assert (store.directory.started_unclean, store.recovery_notes) == (False, [])
    assert all(log.log_end_offset == 3 for log in store.topics["t"].partitions)
    assert all(log.log_end_offset == 0 for log in store.topics["new"].partitions)


@pytest.mark.parametrize("how", ["kill", "cut"])
def test_an_unclean_start_syncs_no_partition_whose_end_is_in_the_checkpoint(disk: SimulatedDisk, how: str) -> None:
    store = with_records(disk)
    for log in store.topics["t"].partitions[:3]:
        append(log, batch(b"more"))
        if log.partition == 0:
            sync(log)
    disk.kill() if how == "kill" else disk.crash()
    with counted(disk) as syncs:
        store = open_store(disk)
    touched = {f"/data/t-{number}/" for number in range(3)}
    mine = [one for one in syncs if "/t-" in one and not any(path in one + "/" for path in touched)]
    assert mine == []
    if how == "kill":
        assert all(any(f"datasync {path}" in one for one in syncs) for path in touched)
        assert [log.log_end_offset for log in store.topics["t"].partitions[:4]] == [4, 4, 4, 3]
    assert syncs.total() <= CONSTANT + 3 * 6, syncs


def test_after_an_unclean_start_a_stop_writes_what_was_not_there_and_no_more(disk: SimulatedDisk) -> None:
    store = again(disk, with_records(disk), "stop")
    store = again(disk, store, "kill")
    with counted(disk) as syncs:
        store.close()
    assert syncs.total() <= CONSTANT, syncs
    disk.kill()
    assert open_store(disk).recovery_notes == []


@pytest.mark.parametrize("how", ["kill", "cut"])
def test_what_was_not_synced_before_is_synced_by_the_start_that_shows_it(disk: SimulatedDisk, how: str) -> None:
    """A kill leaves it in memory alone; consumers see it after the start, so the next cut must not take it."""
    store = with_records(disk)
    log = store.topics["t"].partitions[5]
    append(log, batch(b"more"))
    store = again(disk, store, "kill")
    shown = read_all(store.topics["t"].partitions[5])
    assert len(shown) == 4
    store = again(disk, store, how)
    assert read_all(store.topics["t"].partitions[5]) == shown


def test_an_empty_segment_behind_a_roll_is_known_to_a_clean_start(disk: SimulatedDisk) -> None:
    store = with_records(disk)
    log = store.topics["t"].partitions[0]
    assert log.writer.begin_roll()
    log.roller.roll()
    log.writer.end_roll()
    single_node_watermark.advance_high_watermark(log.state)
    for how in ("stop", "kill", "stop"):
        store = again(disk, store, how)
        log = store.topics["t"].partitions[0]
        assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (0, 3, 2)
        assert store.recovery_notes == []
    append(log, batch(b"more"))
    sync(log)
    assert len(read_all(log)) == 4


def test_a_stop_syncs_what_many_wrote_at_once(disk: SimulatedDisk) -> None:
    """Indexes, snapshots and their names of every partition that was written to: four syncs each would take minutes."""
    store = with_records(disk)
    for log in store.topics["t"].partitions:
        append(log, batch(b"more"))
    with counted(disk) as syncs:
        store.close()
    assert syncs.total() <= CONSTANT, syncs
    disk.crash()
    store = open_store(disk)
    assert (store.directory.started_unclean, store.recovery_notes) == (False, [])
    assert all(len(read_all(log)) == 4 for log in store.topics["t"].partitions)


def failing(steps: dict[str, str], code: int = errno.EIO) -> Fault:
    """Steps of a kind fail on paths that hold a text."""

    def fault(step: str, path: str, _size: int) -> None:
        if step in steps and steps[step] in path:
            raise OSError(code, "broken", path)

    return fault


@pytest.mark.parametrize("unproven", [False, True])
@pytest.mark.parametrize("step", ["create", "write", "datasync", "rename"])
def test_at_a_stop_one_partition_that_fails_costs_no_other(disk: SimulatedDisk, step: str, *, unproven: bool) -> None:
    """Also where syncfs proves nothing, so that each file is synced alone."""
    store = with_records(disk)
    for log in store.topics["t"].partitions:
        append(log, batch(b"more"))
    store.together_min = 1
    disk.fault = failing({"sync_all": ""}, errno.EOPNOTSUPP) if unproven else None
    others, broken = disk.fault, failing({step: "/t-7/"})

    def fault(kind: str, path: str, size: int) -> None:
        broken(kind, path, size)
        if others is not None:
            others(kind, path, size)

    disk.fault = fault
    harmless = step == "datasync" and not unproven  # nothing of the kind is asked for
    with nullcontext() if harmless else pytest.raises(StorageFault, match="/t-7/"):
        store.close()
    disk.fault = None
    disk.crash() if harmless else disk.kill()
    store = open_store(disk)
    assert store.directory.started_unclean != harmless
    kept = [len(read_all(log)) for log in store.topics["t"].partitions]
    assert kept.pop(7) >= (3 if step == "datasync" else 4), "a sync that failed may have cost what it covered"
    assert set(kept) == {4}
    assert not [name for name in disk.names("/data/t-7") if name.endswith(".new")]


def test_a_failed_sync_of_all_is_asked_of_each(disk: SimulatedDisk) -> None:
    store = with_records(disk)
    for log in store.topics["t"].partitions:
        append(log, batch(b"more"))
    disk.fault = failing({"sync_all": ""})
    with counted(disk) as syncs:
        store.close()
    assert sum(count for one, count in syncs.items() if one.startswith("datasync /data/t-")) >= 3 * PARTITIONS
    disk.fault = None
    disk.crash()
    store = open_store(disk)
    assert (store.directory.started_unclean, store.recovery_notes) == (False, [])
