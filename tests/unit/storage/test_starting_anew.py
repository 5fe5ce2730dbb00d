"""A replica that was away for too long begins anew where its leader's log starts, whatever step the power goes at."""

from __future__ import annotations

from functools import partial

import pytest

from edge_broker.errors import StorageFault
from edge_broker.storage.removal import delete_records
from edge_broker.storage.replica import Replica
from edge_broker.storage.starting_anew import start_anew
from edge_broker.storage.store import LogStore
from edge_broker.storage.truncating import go_on, hold
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.testing.site import make_topic
from tests.support.storage import NOW, cut_off, failing
from tests.unit.storage.test_replica import member, of_leader, synced, take
from tests.unit.storage.test_truncating import again, all_of, entries, filled, of_number


def anew(store: LogStore, replica: Replica, start_offset: int) -> None:
    assert hold(replica.log)
    go_on(replica.log, start_anew(store, replica.log, start_offset, NOW))


def check(replica: Replica, start_offset: int) -> None:
    """It is empty, knows nothing of what it had, and its account covers every offset."""
    assert replica.online, replica.log.fault
    ends = (replica.log_start_offset, replica.log_end_offset, replica.synced_offset, replica.log.high_watermark)
    assert ends == (start_offset,) * 4
    assert replica.log.writer.producers.known() == {}
    account = replica.log.removed
    assert [one.first_offset for one in account] == [0, *(one.end_offset for one in account[:-1])]
    assert account[-1].end_offset == start_offset
    assert all(one.records + one.control + one.compacted == one.end_offset - one.first_offset for one in account)


@pytest.mark.parametrize("start", [20, 21, 5000])
@pytest.mark.parametrize("unsynced", [False, True])
def test_it_begins_anew_and_goes_on(start: int, unsynced: bool) -> None:
    disk = SimulatedDisk(1)
    store, replica, _ = filled(disk)
    if unsynced:
        start += 1
        take(replica, of_number(20, 6))
    store.checkpoint()
    anew(store, replica, start)
    check(replica, start)
    assert replica.epochs.starts == ()
    assert entries(store) == []
    for _ in range(2):
        disk.crash()
        store, replica = again(disk)
        assert not [note for note in store.recovery_notes if "lost" in note or "offline" in note]
        check(replica, start)
    more = [of_number(number, 9) for number in range(start, start + 9)]
    take(replica, *more)
    synced(replica.log)
    assert all_of(replica) == more
    disk.crash()
    store, replica = again(disk)
    assert replica.log_start_offset == start
    assert all_of(replica) == more
    assert replica.epochs.starts[-1] == (9, start)
    store.close()
    assert all_of(again(disk)[1]) == more


def test_an_empty_log_begins_anew() -> None:
    disk = SimulatedDisk(1)
    store = member(disk)
    replica = Replica(make_topic(store).partitions[0])
    anew(store, replica, 700)
    check(replica, 700)
    disk.crash()
    check(again(disk)[1], 700)


def test_what_had_gone_before_stays_in_the_account() -> None:
    store, replica, _ = filled(SimulatedDisk(1))
    replica.show_exactly(20)
    delete_records(replica.log, 3, NOW)
    anew(store, replica, 100)
    assert [(one.cause, one.first_offset, one.end_offset) for one in replica.log.removed] == [
        ("deleted", 0, 3),
        ("leader", 3, 100),
    ]
    check(replica, 100)


@pytest.mark.parametrize("start", [20, 900])
@pytest.mark.parametrize("ordered", [False, True], ids=["free", "ordered"])
def test_at_each_step_a_power_cut_leaves_it_as_it_was_or_anew(start: int, ordered: bool) -> None:
    step, done = 0, False
    while not done:
        step += 1
        disk = SimulatedDisk(step * 31 + start, ordered=ordered)
        store, replica, written = filled(disk)
        if step % 2:
            store.checkpoint()
        done = not cut_off(disk, step, partial(anew, store, replica, start))
        disk.crash_at = -1
        disk.kill() if step % 3 == 0 else disk.crash()
        store, replica = again(disk)
        assert {one["cause"] for one in entries(store)} == set()
        if replica.log_start_offset == 0 and not done:
            assert all_of(replica) == written
            continue
        check(replica, start)
        more = [of_leader(number, 9, b"%d" % number) for number in range(start, start + 3)]
        take(replica, *more)
        synced(replica.log)
        disk.crash()
        assert all_of(again(disk)[1]) == more
    assert step > 5


@pytest.mark.parametrize("kind", ["datasync", "remove", "sync_directory", "create", "rename", "write"])
def test_a_step_that_fails_takes_it_offline_and_the_next_start_goes_on(kind: str) -> None:
    disk = SimulatedDisk(1)
    store, replica, written = filled(disk)
    assert hold(replica.log)
    disk.fault = failing(kind, "/t-0")
    with pytest.raises(StorageFault):
        start_anew(store, replica.log, 300, NOW)
    assert not replica.online
    disk.fault = None
    disk.crash()
    _, replica = again(disk)
    if replica.log_start_offset:
        check(replica, 300)
    else:
        assert all_of(replica) == written
