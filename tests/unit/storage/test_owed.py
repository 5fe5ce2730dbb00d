"""What a replica lacks is owed: known at every start, read over by nobody, and settled by a cut or in the ledger."""

from __future__ import annotations

import pytest

from edge_broker.errors import StorageFault
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.loss.quarantine import quarantine
from edge_broker.storage.replica.missing_ranges import record_missing
from edge_broker.storage.replica.replica_log import Replica
from edge_broker.storage.replica.replica_truncation import cut_damage, hold, resume_as
from edge_broker.storage.retention.segment_removal import delete_records
from edge_broker.storage.segment.segment import DamageFound
from edge_broker.testing.disk import SimulatedDisk
from tests.support.storage import NOW, ListLedger, ledgered
from tests.unit.storage.test_replica import synced, take
from tests.unit.storage.test_truncating import again, all_of, filled


def position_of(log: PartitionLog, offset: int) -> tuple[int, int]:
    """The number of the segment that holds an offset, and the byte at which its batch begins."""
    at = max(number for number, segment in enumerate(log.segments) if segment.base_offset <= offset)
    return at, log.segments[at].locate(offset, log.segments[at].size, blocking=True)


def damaged(disk: SimulatedDisk, replica: Replica, offset: int) -> DamageFound:
    """Damage that a reader meets."""
    at, position = position_of(replica.log, offset)
    segment = replica.log.segments[at]
    disk.flip(segment.path, position + 100)
    replica.show_exactly(replica.log_end_offset)
    with pytest.raises(DamageFound) as found:
        replica.log.reader.read(offset, 1000, blocking=True)
    return found.value


def found_damage(disk: SimulatedDisk, replica: Replica, offset: int) -> None:
    found = damaged(disk, replica, offset)
    for _ in range(2):
        with pytest.raises(StorageFault, match="another replica"):
            quarantine(replica.log, found)
    assert replica.has_missing
    with pytest.raises(DamageFound):
        replica.log.reader.read(offset, 1000, blocking=True)


def cut(store: LogStore, replica: Replica) -> None:
    assert hold(replica.log)
    resume_as(replica.log, cut_damage(store, replica.log, NOW))


@pytest.mark.parametrize("offset", [0, 7, 19])
@pytest.mark.parametrize("how", ["stay", "kill", "crash"])
def test_a_replica_is_cut_where_its_damage_begins_and_takes_the_rest_again(offset: int, how: str) -> None:
    disk = SimulatedDisk(offset)
    store, replica, written = filled(disk)
    found_damage(disk, replica, offset)
    found_damage(disk, replica, offset + 3) if offset < 17 else None
    if how != "stay":
        (disk.crash if how == "crash" else disk.kill)()
        store, replica = again(disk)
        assert replica.has_missing
        assert replica.log_end_offset == 20
    cut(store, replica)
    assert (replica.log_end_offset, replica.has_missing) == (offset, False)
    assert all_of(replica) == written[:offset]
    take(replica, *written[offset:])
    synced(replica.log)
    assert all_of(replica) == written
    assert ledgered(store) == [], "nothing is lost"
    disk.crash()
    _, replica = again(disk)
    assert (all_of(replica), replica.has_missing) == (written, False)


@pytest.mark.parametrize("how", ["stay", "kill"])
def test_what_nobody_has_is_in_the_ledger_before_readers_go_on_behind_it(how: str) -> None:
    disk = SimulatedDisk(2)
    store, replica, written = filled(disk)
    found_damage(disk, replica, 7)
    if how == "kill":
        disk.kill()
        store, replica = again(disk)
    ledger = replica.log.ledger
    replica.log.ledger = full = ListLedger()
    full.fault = StorageFault("ledger", 0, "full")
    with pytest.raises(StorageFault):
        record_missing(replica.log)
    assert replica.has_missing
    replica.log.ledger = ledger
    record_missing(replica.log)
    assert not replica.has_missing
    assert all_of(replica) == written[:7] + written[8:]
    assert ledgered(store) == [("damaged", "t", 0, 7, 7)]
    disk.crash()
    store, replica = again(disk)
    assert (replica.has_missing, all_of(replica)) == (False, written[:7] + written[8:])


def test_what_a_start_finds_is_owed_as_well() -> None:
    disk = SimulatedDisk(3)
    store, replica, written = filled(disk)
    store.checkpoint()
    at, position = position_of(replica.log, 19)
    path = replica.log.segments[at].path
    disk.kill()
    disk.flip(path, position + 100)
    store, replica = again(disk)
    assert (replica.has_missing, replica.log_end_offset) == (True, 20)
    assert ledgered(store) == []
    cut(store, replica)
    assert all_of(replica) == written[:19]


def test_damage_before_the_start_is_no_loss() -> None:
    disk = SimulatedDisk(4)
    store, replica, _ = filled(disk)
    found = damaged(disk, replica, 1)
    replica.log.state.log_start_offset = 3
    quarantine(replica.log, found)
    assert not replica.has_missing
    assert ledgered(store) == []


def test_a_cut_that_comes_when_the_damage_went_from_the_front_takes_nothing() -> None:
    disk = SimulatedDisk(1)
    store, replica, written = filled(disk)
    found_damage(disk, replica, 3)
    delete_records(replica.log, 9, NOW)
    assert not replica.has_missing
    cut(store, replica)
    assert (replica.log_start_offset, replica.log_end_offset, replica.online) == (9, 20, True)
    disk.crash()
    _, replica = again(disk)
    assert all_of(replica) == written[9:]
