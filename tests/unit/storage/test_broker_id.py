"""A data directory is served under one `broker.id`: another board's card under an id of its own is refused."""

from __future__ import annotations

import errno
import random
import uuid
from pathlib import Path

import pytest

from drupelet.errors import ConfigurationError
from edge_broker.configuration.settings import LogSettings
from edge_broker.errors import StorageFault
from edge_broker.storage.files.atomic_files import read_whole, temporary_name, with_head
from edge_broker.storage.files.filesystem import Disk
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.metadata.broker_id import FILE, read_broker_id, write_broker_id
from edge_broker.storage.metadata.broker_registrations import FILE as REGISTRATIONS
from edge_broker.testing.disk import SimulatedDisk
from edge_broker.testing.site import make_topic
from tests.support.storage import READING, cut_off, failing, open_store

PATH = f"/data/{FILE}"


def start(disk: SimulatedDisk, broker_id: int, *, in_cluster: bool = False) -> LogStore:
    return LogStore.open(
        disk,
        "/data",
        LogSettings(),
        READING,
        uuid.uuid4,
        str(broker_id),
        in_cluster=in_cluster,
        broker_id=broker_id,
    )


def files_of(disk: SimulatedDisk) -> dict[str, bytes]:
    there = [name for name in (FILE, REGISTRATIONS, "store", "clean-shutdown") if disk.exists(f"/data/{name}")]
    return {name: read_whole(disk, f"/data/{name}") for name in there}


def refused(disk: SimulatedDisk, broker_id: int, *, in_cluster: bool = False) -> str:
    """Why a start under this id is refused; nothing may change by it."""
    disk.kill()
    before = files_of(disk)
    with pytest.raises((StorageFault, ConfigurationError)) as caught:
        start(disk, broker_id, in_cluster=in_cluster)
    disk.kill()
    assert files_of(disk) == before
    return str(caught.value)


def test_another_boards_card_is_refused_with_both_ids_and_the_ways_out() -> None:
    disk = SimulatedDisk(1)
    store = start(disk, 2, in_cluster=True)
    store.directory.register(17, "c")
    reason = refused(disk, 3, in_cluster=True)
    assert "broker.id is 3, and the data directory /data is of broker 2; set broker.id=2" in reason
    assert f"remove {PATH}" in reason
    assert start(disk, 2, in_cluster=True).directory.registrations == store.directory.registrations
    disk.kill()
    disk.remove(PATH)
    start(disk, 3, in_cluster=True)
    assert read_broker_id(disk, "/data") == 3, "a person has said so"


def test_the_id_of_a_board_that_stands_alone_does_not_change() -> None:
    disk = SimulatedDisk(1)
    start(disk, 1)
    assert "broker.id is 7, and the data directory /data is of broker 1" in refused(disk, 7)
    start(disk, 1)


def test_a_board_that_joins_its_first_cluster_may_get_another_id() -> None:
    disk = SimulatedDisk(1)
    start(disk, 1)
    disk.kill()
    start(disk, 3, in_cluster=True)
    assert read_broker_id(disk, "/data") == 3
    assert "is of broker 3" in refused(disk, 1, in_cluster=True)


def test_what_may_join_no_cluster_keeps_its_id() -> None:
    disk = SimulatedDisk(1)
    make_topic(start(disk, 1), "t")
    assert "has its topics here (t)" in refused(disk, 3, in_cluster=True)
    start(disk, 1)


def test_a_refused_start_gives_no_id_to_a_directory_of_an_earlier_release() -> None:
    """The right start would be refused after that, as the directory would be another broker's."""
    alone, member = SimulatedDisk(1), SimulatedDisk(2)
    make_topic(start(alone, 1), "t")
    start(member, 2, in_cluster=True)
    for disk in (alone, member):
        disk.kill()
        disk.remove(PATH)
    assert "has its topics here (t)" in refused(alone, 3, in_cluster=True)
    assert "belongs to a cluster; start it with zookeeper.connect" in refused(member, 1)
    start(alone, 1)
    start(member, 2, in_cluster=True)


def test_a_disk_with_replicas_whose_registrations_are_gone_keeps_its_id() -> None:
    """It counts as another disk of the same broker; its journal tells that it has been in a cluster."""
    disk = SimulatedDisk(1)
    start(disk, 2, in_cluster=True)
    disk.kill()
    disk.remove(f"/data/{REGISTRATIONS}")
    assert "is of broker 2" in refused(disk, 3, in_cluster=True)


@pytest.mark.parametrize("in_cluster", [False, True])
def test_a_directory_of_an_earlier_release_takes_the_present_id(in_cluster: bool) -> None:
    disk = SimulatedDisk(1)
    LogStore.open(disk, "/data", LogSettings(), READING, uuid.uuid4, "5", in_cluster=in_cluster)
    assert not disk.exists(PATH)
    disk.kill()
    start(disk, 5, in_cluster=in_cluster)
    disk.crash()
    assert read_broker_id(disk, "/data") == 5, "synced"
    assert "is of broker 5" in refused(disk, 6, in_cluster=in_cluster)


def test_without_space_it_is_noted_and_written_later() -> None:
    disk = SimulatedDisk(1)
    open_store(disk)
    disk.kill()
    disk.fault = failing("rename", PATH, errno.ENOSPC)
    assert [note for note in start(disk, 5).recovery_notes if "the next start does" in note]
    disk.kill()
    disk.fault = None
    start(disk, 5)
    assert read_broker_id(disk, "/data") == 5


def test_a_disk_that_fails_otherwise_stops_the_start() -> None:
    disk = SimulatedDisk(1)
    open_store(disk)
    disk.kill()
    disk.fault = failing("rename", PATH)
    with pytest.raises(StorageFault):
        start(disk, 5)


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_while_a_board_joins_leaves_what_can_be_started_again(seed: int) -> None:
    disk = SimulatedDisk(seed, ordered=bool(seed % 2))
    start(disk, 1).close()
    disk.kill()
    cut_off(disk, random.Random(seed).randrange(1, 25), lambda: start(disk, 3, in_cluster=True))
    disk.crash()
    start(disk, 3, in_cluster=True)
    assert read_broker_id(disk, "/data") == 3


@pytest.mark.parametrize("name", [FILE, REGISTRATIONS])
def test_what_a_crash_left_of_the_file_does_not_stop_the_next_start(name: str) -> None:
    disk = SimulatedDisk(1)
    open_store(disk)
    disk.kill()
    disk.put(temporary_name("/data", name), b"drupelet")
    assert start(disk, 3, in_cluster=True).directory.registrations is not None


@pytest.mark.leaves("newer than the 1")
@pytest.mark.parametrize("body", [b"", b"one\n", b"1 2\n", b"1\n2\n", "²\n".encode()])
def test_a_damaged_file_stops_the_start_and_says_what_to_do(body: bytes) -> None:
    disk = SimulatedDisk(1)
    start(disk, 1)
    for content in (with_head("broker-id", 1, body), b"drupelet broker-id 1 00000000\n1\n", b""):
        disk.put(PATH, content)
        assert "or remove it: the next start writes the broker.id of its configuration" in refused(disk, 1)
    disk.put(PATH, b"drupelet broker-id 2 00000000\n1\n")
    assert "newer than the 1" in refused(disk, 1)


def test_the_bytes_are_as_formats_says() -> None:
    disk = SimulatedDisk(1)
    disk.make_directory("/data")
    write_broker_id(disk, "/data", 3)
    assert read_whole(disk, PATH) == b"drupelet broker-id 1 ee2ae5f0\n3\n"


@pytest.mark.parametrize("broken", [FILE, "store", "leader-epoch"])
def test_a_refused_start_lets_the_directory_go_while_its_error_is_held(broken: str, tmp_path: Path) -> None:
    where = str(tmp_path / "data")

    def begin(broker_id: int) -> LogStore:
        return LogStore.open(Disk(), where, LogSettings(), READING, uuid.uuid4, broker_id=broker_id)

    begin(1).close()
    with pytest.raises(ConfigurationError) as other_id:
        begin(2)
    kept = (tmp_path / "data" / broken).read_bytes()
    (tmp_path / "data" / broken).write_bytes(b"damaged")
    with pytest.raises(StorageFault) as damaged:
        begin(1)
    assert broken in str(damaged.value)
    (tmp_path / "data" / broken).write_bytes(kept)
    begin(1).close()
    assert other_id.value.__traceback__ is not None
