"""A data directory of a cluster knows which disk it is, whatever a power cut leaves of its newest registration."""

from __future__ import annotations

import random

import pytest

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.errors import StorageFault
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.metadata.broker_registrations import (
    EPOCHS_KEPT,
    FILE,
    NO_CUT,
    Registrations,
    read_registrations,
    write_registrations,
)
from edge_broker.storage.metadata.topic_record import JOURNAL_TOPIC
from edge_broker.storage.replica.replica_log import Replica
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.testing.site import make_topic
from tests.support.doctor_data.registrations import CLUSTER, member
from tests.support.storage import cut_off, failing, open_store

PATH = f"/data/{FILE}"


def test_a_directory_gets_an_identity_once() -> None:
    disk = SimulatedDisk(1)
    made = member(disk).directory.registrations
    assert made is not None
    assert made.epochs == ()
    assert len(made.directory) == 22
    disk.crash()
    assert member(disk).directory.registrations == made
    assert member(SimulatedDisk(2)).directory.registrations != made


def test_a_registration_is_on_the_disk_when_it_may_be_used() -> None:
    disk = SimulatedDisk(1)
    store = member(disk)
    assert store.directory.register(17, CLUSTER).epochs == (17,)
    assert store.directory.register(40, CLUSTER).epochs == (17, 40)
    disk.kill()
    assert member(disk).directory.registrations == store.directory.registrations


@pytest.mark.parametrize("seed", range(30))
def test_a_power_cut_leaves_the_old_epochs_or_the_new_ones(seed: int) -> None:
    disk = SimulatedDisk(seed, ordered=bool(seed % 2))
    dice = random.Random(seed)
    store = member(disk)
    before = store.directory.register(17, CLUSTER)
    if not cut_off(disk, dice.randrange(1, 6), lambda: store.directory.register(40, CLUSTER)):
        assert store.directory.registrations == before.with_epoch(40, CLUSTER)
    disk.kill() if dice.random() < 0.3 else disk.crash()
    found = member(disk).directory.registrations
    assert found is not None
    found = found._replace(cut_epoch=NO_CUT)
    assert found in (before, before.with_epoch(40, CLUSTER))
    assert found == before.with_epoch(40, CLUSTER) or store.directory.registrations == before


def test_what_cannot_be_written_does_not_hold() -> None:
    disk = SimulatedDisk(1)
    store = member(disk)
    before = store.directory.register(17, CLUSTER)
    disk.fault = failing("datasync")
    with pytest.raises(StorageFault):
        store.directory.register(40, CLUSTER)
    assert store.directory.registrations == before


def test_the_newest_epochs_are_kept() -> None:
    many = Registrations("d")
    for epoch in range(EPOCHS_KEPT + 3):
        many = many.with_epoch(epoch, CLUSTER)
    assert many.epochs == tuple(range(3, EPOCHS_KEPT + 3))
    disk = SimulatedDisk(1)
    disk.make_directory("/data")
    write_registrations(disk, "/data", many)
    assert read_registrations(disk, "/data") == many


@pytest.mark.leaves("newer than the 1")
@pytest.mark.parametrize("line", ["", "directory", "disk a\n", "directory a\nepoch x\n", "directory a\nzxid 3\n"])
def test_a_damaged_file_stops_the_start_and_says_what_to_do(line: str) -> None:
    from edge_broker.storage.files.atomic_files import with_head

    disk = SimulatedDisk(1)
    member(disk)
    disk.put(PATH, with_head("registrations", 1, line.encode()))
    disk.kill()
    with pytest.raises(StorageFault, match="the disk counts as another one"):
        member(disk)
    disk.put(PATH, b"drupelet registrations 2 00000000\n")
    disk.kill()
    with pytest.raises(StorageFault, match="newer"):
        member(disk)


def test_a_disk_of_a_cluster_is_not_served_alone() -> None:
    disk = SimulatedDisk(1)
    member(disk)
    disk.kill()
    with pytest.raises(StorageFault, match="belongs to a cluster; start it with"):
        open_store(disk)


def test_what_a_board_that_stood_alone_has_stored_is_made_no_member_of() -> None:
    """It would not be served, a topic of its name could not be, and there would be no way back."""
    disk = SimulatedDisk(1)
    store = open_store(disk)
    for number in range(7):
        make_topic(store, f"t{number}")
    disk.kill()
    with pytest.raises(StorageFault, match=r"has its topics here \(t0, t1, t2, t3, t4 and 2 more\).*edge-mirror"):
        member(disk)
    disk.kill()
    assert len(open_store(disk).topics) == 8, "it is served alone as before"


def test_one_that_has_nothing_but_its_ledger_comes_along() -> None:
    disk = SimulatedDisk(1)
    open_store(disk)
    disk.kill()
    assert list(member(disk).topics) == [JOURNAL_TOPIC]


def test_a_member_whose_registrations_were_removed_stays_one() -> None:
    """As a damaged file says: the disk counts as another one then."""
    disk = SimulatedDisk(1)
    make_topic(member(disk), "t")
    disk.remove(PATH)
    disk.kill()
    assert "t" in member(disk).topics


def test_replicas_of_a_disk_that_knows_no_cluster_are_orphans_and_the_ledgers_are_none() -> None:
    disk = SimulatedDisk(1)
    store = member(disk)
    assert store.orphans == (), "at the first start of all"
    make_topic(store, "t")
    make_topic(store, LEDGER_TOPIC)
    assert store.orphans == ("t",)
    store.directory.register(17, CLUSTER)
    assert store.orphans == (), "it knows its cluster"
    disk.remove(PATH)
    disk.kill()
    assert member(disk).orphans == ("t",)


def test_a_board_that_stands_alone_has_no_such_file() -> None:
    disk = SimulatedDisk(1)
    store = open_store(disk)
    assert store.directory.registrations is None
    assert not disk.exists(PATH)
    assert not store.directory.is_replicated("t")


def test_a_power_cut_is_kept_until_the_next_one_and_ends_no_trust_in_what_came_after() -> None:
    disk = SimulatedDisk(1)
    member(disk).directory.register(17, CLUSTER)
    disk.kill()
    store = member(disk)
    assert cut_of(store) == NO_CUT, "the kernel had all"
    store.close()
    assert cut_of(member(disk)) == NO_CUT
    disk.crash()
    store = member(disk)
    assert cut_of(store) == 17
    store.directory.register(40, CLUSTER)
    disk.kill()
    store = member(disk)
    assert (cut_of(store), store.directory.registrations and store.directory.registrations.epochs) == (17, (17, 40))
    store.close()
    store = member(disk)
    assert cut_of(store) == 17
    disk.crash()
    assert cut_of(member(disk)) == 40


@pytest.mark.parametrize("seed", range(10))
def test_a_power_cut_that_comes_again_at_the_start_is_told(seed: int) -> None:
    disk = SimulatedDisk(seed, ordered=bool(seed % 2))
    member(disk).directory.register(17, CLUSTER)
    disk.crash()
    while cut_off(disk, random.Random(seed).randrange(1, 30), lambda: member(disk)):
        disk.crash() if seed % 3 else disk.kill()
        seed += 1
    disk.crash_at = -1
    disk.kill()
    assert cut_of(member(disk)) == 17


def test_logs_know_of_it_and_those_that_are_synced_lack_nothing() -> None:
    disk = SimulatedDisk(1)
    store = member(disk)
    store.directory.register(17, CLUSTER)
    make_topic(store, "synced")
    for durability in ("kernel", "interval"):
        make_topic(store, durability, config={"edge.durability": durability})
    disk.crash()
    store = member(disk)
    found = {
        name: Replica(topic.partitions[0]) for name, topic in store.topics.items() if name != store.directory.own_ledger
    }
    assert {name: (replica.may_lack(17), replica.may_lack(18)) for name, replica in found.items()} == {
        "synced": (False, False),
        "kernel": (True, False),
        "interval": (True, False),
    }


def cut_of(store: LogStore) -> int:
    assert store.directory.registrations is not None
    return store.directory.registrations.cut_epoch
