"""The data directory alone: its lock, its ids and epoch, the age and the clean stop, without any topic."""

import errno
import uuid
from functools import partial

import pytest

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.errors import StorageFault
from edge_broker.storage.data_directory import SECURED, STORE, DataDirectory, served_anybody
from edge_broker.storage.files.atomic_files import encode_state
from edge_broker.storage.files.data_age import KEPT_MS
from edge_broker.storage.files.sync_cost import Card
from edge_broker.storage.metadata.topic_record import JOURNAL_TOPIC
from edge_broker.testing.clock import NOW_MS, reading_at
from edge_broker.testing.disk import SimulatedDisk
from tests.support.storage import READING, cut_off, failing


@pytest.fixture
def disk():
    return SimulatedDisk(1)


def make(disk):
    """Return the locked directory of a first start."""
    directory = DataDirectory(disk, "/data")
    directory.initialise(directory.lock(), uuid.uuid4)
    return directory


def start(disk, reading=READING):
    """Return the directory as a start reads it, in a new epoch if the last stop was not clean."""
    directory = DataDirectory(disk, "/data")
    names = directory.lock()
    directory.read_ids()
    directory.read_age(reading)
    directory.begin_epoch(names)
    return directory


def test_store_is_the_last_file_of_a_new_directory(disk):
    others = {SECURED, "leader-epoch", "producer-ids", "clean-shutdown", "topics"}
    steps = with_store = 0
    while cut_off(disk := SimulatedDisk(steps), steps + 1, partial(make, disk)):
        steps += 1
        disk.crash()
        if disk.exists("/data") and STORE in disk.names("/data"):
            with_store += 1
            assert others <= set(disk.names("/data"))
    assert steps > 20
    assert with_store < 5
    assert others <= set(disk.names("/data"))


def test_partitions_without_the_store_file_are_not_taken_for_a_new_directory(disk):
    directory = DataDirectory(disk, "/data")
    names = directory.lock()
    with pytest.raises(StorageFault, match="is missing beside partition directories"):
        directory.initialise([*names, "t-0"], uuid.uuid4)
    assert STORE not in disk.names("/data")


def test_one_holds_the_lock_until_it_unlocks(disk):
    first = make(disk)
    with pytest.raises(StorageFault, match="another broker runs"):
        DataDirectory(disk, "/data").lock()
    first.unlock()
    assert STORE in DataDirectory(disk, "/data").lock()


def test_only_a_directory_of_before_the_marker_served_any_network(disk):
    assert not served_anybody(disk, "/data")
    make(disk)
    assert not served_anybody(disk, "/data")
    disk.remove(f"/data/{SECURED}")
    assert served_anybody(disk, "/data")


def test_epoch_rises_unless_the_stop_was_clean(disk):
    make(disk).unlock()
    first = start(disk)
    assert (first.leader_epoch, first.started_unclean) == (0, False)
    disk.crash()
    second = start(disk)
    assert (second.leader_epoch, second.started_unclean) == (1, True)
    second.mark_clean()
    disk.crash()
    third = start(disk)
    assert (third.leader_epoch, third.started_unclean) == (1, False)
    disk.crash()
    assert start(disk).leader_epoch == 2, "one clean stop counts once"


def test_raised_epoch_is_on_the_disk(disk):
    make(disk)
    disk.kill()
    directory = start(disk)
    assert directory.raise_leader_epoch(7) == 8
    assert directory.raise_leader_epoch(7) == 8
    assert directory.raise_leader_epoch(3) == 8
    disk.crash()
    assert start(disk).leader_epoch == 9


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("leader-epoch", None, "is missing"),
        (STORE, encode_state(STORE, 1, ["a", "b"]), "has 2 entries where one belongs"),
        ("producer-ids", encode_state("producer-ids", 1, ["1 2"]), "has 1 entries where one belongs"),
    ],
)
def test_an_id_that_cannot_be_read_stops_the_start(disk, name, content, reason):
    make(disk)
    disk.kill()
    disk.remove(f"/data/{name}")
    if content is not None:
        disk.create(f"/data/{name}").write(content, 0)
    with pytest.raises(StorageFault, match=reason):
        start(disk)


def test_only_the_journal_of_a_member_is_no_replica(disk):
    directory = make(disk)
    assert not directory.is_replicated("t")
    assert directory.own_ledger == LEDGER_TOPIC
    directory.open_registrations([], uuid.uuid4)
    assert directory.is_replicated("t")
    assert directory.own_ledger == JOURNAL_TOPIC
    assert not directory.is_replicated(JOURNAL_TOPIC)


def test_equal_registrations_are_not_written_again(disk):
    directory = make(disk)
    directory.open_registrations([], uuid.uuid4)
    steps = disk.steps
    directory.keep_registrations(directory.registrations)
    assert disk.steps == steps
    directory.keep_registrations(directory.registrations.with_epoch(3, "c"))
    assert disk.steps > steps


def test_age_is_written_when_it_is_worth_it_and_at_a_stop(disk):
    make(disk)
    disk.kill()
    directory = start(disk)
    assert not directory.is_same_boot(READING.boot_id), "no age was kept yet"
    directory.write_age()
    assert directory.is_same_boot(READING.boot_id)
    directory.advance_age(reading_at(NOW_MS + KEPT_MS - 1))
    steps = disk.steps
    directory.write_age()
    assert disk.steps == steps
    directory.write_last_age()
    disk.crash()
    again = start(disk, reading_at(NOW_MS + KEPT_MS - 1))
    assert again.age.age_ms == KEPT_MS - 1


@pytest.mark.parametrize("name", ["age", "card", "in-use", "recovery-point-offset-checkpoint"])
def test_a_corrupt_file_that_a_start_can_do_without_is_noted(disk, name):
    make(disk)
    disk.kill()
    disk.create(f"/data/{name}").write(b"garbage\n", 0)
    directory = start(disk)
    directory.read_positions()
    assert directory.read_marks() is None
    assert directory.read_card() is None
    assert len(directory.notes) == 1
    assert f"/data/{name}" in directory.notes[0]


def test_last_recovery_has_bounded_notes(disk):
    make(disk)
    disk.crash()
    directory = start(disk)
    directory.notes.extend(["a\nb" + "x" * 2000] * 600)
    directory.write_last_recovery(NOW_MS, 77)
    lines = disk.content("/data/last-recovery").decode().splitlines()
    stop = "unclean" if directory.started_unclean else "clean"
    assert f"{directory.leader_epoch} {NOW_MS} {stop} 77" in lines
    notes = [line for line in lines if line.startswith("a b")]
    assert (len(notes), {len(note) for note in notes}) == (500, {1000})


@pytest.mark.parametrize(
    ("name", "work"),
    [
        ("producer-ids", lambda directory: directory.producer_ids.reserve()),
        ("card", lambda directory: directory.keep_card(Card((), 10, 1, 1))),
    ],
)
def test_a_failed_write_names_the_file(disk, name, work):
    directory = make(disk)
    disk.fault = failing("rename", name, errno.EIO)
    with pytest.raises(StorageFault, match=f"/data/{name}"):
        work(directory)


def test_a_new_broker_id_waits_for_space(disk):
    directory = make(disk)
    disk.fault = failing("rename", "broker-id", errno.ENOSPC)
    directory.keep_broker_id(4, in_cluster=False)
    assert directory.notes == ["/data/broker-id: no space to write it; the next start does"]
    disk.fault = None
    directory.keep_broker_id(4, in_cluster=False)
    assert "broker-id" in disk.names("/data")
