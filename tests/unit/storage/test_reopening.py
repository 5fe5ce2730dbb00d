"""An offline replica is opened as by a start, with what its disk had for certain; what it led is written down first."""

from __future__ import annotations

from functools import partial

import pytest

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.errors import StorageFault
from edge_broker.protocol.record_batch import read_header
from edge_broker.storage.log.leader_epochs import NONE
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.recovery.open_partition import LogMissing
from edge_broker.storage.replica.missing_ranges import record_missing
from edge_broker.storage.replica.reopen_replica import reopen
from edge_broker.storage.replica.replica_log import Replica
from edge_broker.storage.replica.replica_truncation import cut_damage, enter, hold, resume_as, truncate
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.testing.site import make_topic
from tests.support.storage import NOW, ListLedger, batch, cut_off, failing, ledgered
from tests.unit.storage.test_passing_over import held
from tests.unit.storage.test_replica import member, synced, take
from tests.unit.storage.test_truncating import again, all_of, filled, of_number

FAULT = StorageFault("the card", 0, "no answer")


def opens(store: LogStore, replica: Replica, *, may_recreate: bool = False) -> None:
    replica.log.go_on_as(reopen(store, replica.log, NOW, led_from=replica.led_from, may_recreate=may_recreate).log)


def leads(replica: Replica, count: int, epoch: int = 9) -> None:
    """Lead, and append what no sync has confirmed."""
    replica.begin_epoch(epoch)
    replica.keep_epoch()
    for _ in range(count):
        made = batch(b"led")
        replica.log.writer.append(made, read_header(made), NOW)
        replica.batches_appended()


def lost_segments(disk: SimulatedDisk, log: PartitionLog, count: int | None = None) -> None:
    """A card loses the first segments of a log, or its whole directory, while nothing runs."""
    names = sorted(disk.names(log.directory))
    bases = [f"{one.base_offset:020d}" for one in log.segments][:count]
    for name in names:
        if count is None or name.partition(".")[0] in bases:
            disk.remove(f"{log.directory}/{name}")
    if count is None:
        disk.remove_directory(log.directory)
    disk.sync_all("/data")
    disk.kill()


def test_a_follower_goes_on_with_what_its_disk_had_confirmed_and_loses_nothing_by_it() -> None:
    disk = SimulatedDisk(1)
    store, replica, written = filled(disk, batches=9)
    take(replica, of_number(9, 4), of_number(10, 4))
    replica.log.fail(FAULT)
    opens(store, replica)
    assert (replica.online, replica.log_end_offset, replica.synced_offset) == (True, 9, 9)
    assert all_of(replica) == written
    assert ledgered(store) == []
    take(replica, of_number(9, 6), of_number(10, 6))
    synced(replica.log)
    disk.crash()
    _, replica = again(disk)
    assert all_of(replica) == [*written, of_number(9, 6), of_number(10, 6)]


def test_what_it_led_and_no_disk_had_confirmed_is_in_the_ledger_first() -> None:
    store, replica, written = filled(SimulatedDisk(2), batches=5)
    leads(replica, 3)
    replica.log.fail(FAULT)
    ledger, replica.log.ledger = replica.log.ledger, ListLedger()
    replica.log.ledger.fault = StorageFault("ledger", 0, "full")
    with pytest.raises(StorageFault, match="full"):
        opens(store, replica)
    assert (replica.online, replica.log_end_offset) == (False, 8)
    replica.log.ledger = ledger
    opens(store, replica)
    assert (replica.log_end_offset, all_of(replica)) == (5, written)
    assert ledgered(store) == [("sync_failed", "t", 0, 5, 7)]


@pytest.mark.parametrize(("kept_until", "lost"), [(3, (5, 7)), (6, (6, 7)), (7, (7, 7)), (8, None), (99, None)])
def test_what_the_leader_has_is_no_loss(kept_until: int, lost: tuple[int, int] | None) -> None:
    store, replica, written = filled(SimulatedDisk(8), batches=5)
    leads(replica, 3)
    assert replica.unconfirmed_epoch == 9
    replica.log.fail(FAULT)
    assert replica.unconfirmed_epoch == 9
    found = reopen(store, replica.log, NOW, led_from=replica.led_from, may_recreate=False, kept_until=kept_until)
    replica.log.go_on_as(found.log)
    assert (replica.log_end_offset, all_of(replica)) == (5, written), "the rest comes from the leader"
    assert ledgered(store) == ([] if lost is None else [("sync_failed", "t", 0, *lost)])


def test_nothing_is_unconfirmed_of_who_follows_or_has_synced_or_of_a_ledger() -> None:
    store, replica, _ = filled(SimulatedDisk(9), batches=5)
    assert replica.unconfirmed_epoch == NONE
    leads(replica, 1)
    synced(replica.log)
    assert replica.unconfirmed_epoch == NONE
    ledger = Replica(make_topic(store, LEDGER_TOPIC).partitions[0])
    leads(ledger, 1)
    assert ledger.unconfirmed_epoch == NONE


def test_who_has_fetched_since_it_led_enters_nothing() -> None:
    store, replica, _ = filled(SimulatedDisk(3), batches=5)
    leads(replica, 0)
    take(replica, of_number(5, 11))
    replica.log.fail(FAULT)
    opens(store, replica)
    assert (replica.log_end_offset, ledgered(store)) == (5, [])


def test_a_disk_that_still_refuses_leaves_it_offline_as_it_was() -> None:
    disk = SimulatedDisk(4)
    store, replica, written = filled(disk, batches=5)
    replica.log.fail(FAULT)
    disk.fault = failing("datasync", "/t-0")
    for _ in range(2):
        with pytest.raises(StorageFault):
            opens(store, replica)
        assert str(replica.log.fault) == str(FAULT)
    disk.fault = None
    opens(store, replica)
    assert all_of(replica) == written


def test_a_truncation_that_failed_amid_it_is_carried_out() -> None:
    disk = SimulatedDisk(5)
    store, replica, written = filled(disk, batches=9)
    log = replica.log
    assert hold(log)
    entered = enter(log, 4)
    disk.fault = failing("truncate", "/t-0")
    with pytest.raises(StorageFault):
        truncate(store, log, entered, NOW)
    disk.fault = None
    opens(store, replica)
    assert (replica.online, replica.busy, all_of(replica)) == (True, False, written[:4])


def test_what_was_acknowledged_before_its_sync_waits_for_the_next_start() -> None:
    store = member(SimulatedDisk(6))
    replica = Replica(make_topic(store, config={"edge.durability": "kernel"}).partitions[0])
    take(replica, of_number(0, 1))
    replica.log.fail(FAULT)
    with pytest.raises(StorageFault, match="restart"):
        opens(store, replica)


def test_a_missing_directory_is_left_alone_until_nobody_counts_on_it() -> None:
    disk = SimulatedDisk(7)
    store, replica, written = filled(disk, batches=9)
    store.checkpoint()
    lost_segments(disk, replica.log)
    for _ in range(2):
        store, replica = again(disk)
        assert (replica.online, replica.missing, disk.exists("/data/t-0")) == (False, True, False)
        with pytest.raises(LogMissing):
            opens(store, replica)
        disk.kill()
    store, replica = again(disk)
    opens(store, replica, may_recreate=True)
    assert (replica.online, replica.missing, replica.log_end_offset) == (True, False, 0)
    take(replica, *written)
    synced(replica.log)
    disk.crash()
    store, replica = again(disk)
    assert (replica.online, replica.has_missing, all_of(replica)) == (True, False, written)
    assert ledgered(store) == [], "others have it"


@pytest.mark.leaves("/data/t-0")
def test_at_each_step_of_beginning_anew_a_power_cut_leaves_it_missing_or_empty() -> None:
    found = set()
    for step in range(1, 60):
        disk = SimulatedDisk(step)
        store, replica, _ = filled(disk, batches=9)
        store.checkpoint()
        lost_segments(disk, replica.log)
        store, replica = again(disk)
        log = replica.log
        if not cut_off(disk, step, partial(reopen, store, log, NOW, led_from=None, may_recreate=True)):
            break
        disk.crash()
        store, replica = again(disk)
        found.add((replica.missing, replica.has_missing, replica.online))
        assert ledgered(store) == []
    assert (True, False, False) in found
    assert (False, False, True) in found
    assert found <= {(True, False, False), (False, False, True)}


def test_a_replica_without_a_segment_is_missing_and_enters_nothing() -> None:
    disk = SimulatedDisk(8)
    store, replica, written = filled(disk, batches=20)
    store.checkpoint()
    lost_segments(disk, replica.log, 99)
    store, replica = again(disk)
    assert (replica.online, replica.missing) == (False, True)
    opens(store, replica, may_recreate=True)
    take(replica, *written)
    assert all_of(replica) == written
    assert ledgered(store) == []


@pytest.mark.parametrize("others_have_it", [True, False])
def test_missing_first_segments_are_owed_and_come_from_others(others_have_it: bool) -> None:
    disk = SimulatedDisk(9)
    store, replica, written = filled(disk, batches=20)
    store.checkpoint()
    base = replica.log.segments[2].base_offset
    lost_segments(disk, replica.log, 2)
    for _ in range(2):
        store, replica = again(disk)
        assert (replica.online, replica.has_missing, replica.log_start_offset, replica.log_end_offset) == (
            True,
            True,
            0,
            20,
        )
        assert ledgered(store) == []
        disk.kill()
    store, replica = again(disk)
    if others_have_it:
        assert hold(replica.log)
        resume_as(replica.log, cut_damage(store, replica.log, NOW))
        assert replica.log_end_offset == 0
        take(replica, *written)
        synced(replica.log)
    else:
        record_missing(replica.log)
    left = written if others_have_it else written[base:]
    for _ in range(2):
        assert not replica.has_missing
        assert (all_of(replica) if others_have_it else held(replica)) == left
        assert ledgered(store) == ([] if others_have_it else [("damaged", "t", 0, 0, base - 1)])
        disk.crash()
        store, replica = again(disk)
