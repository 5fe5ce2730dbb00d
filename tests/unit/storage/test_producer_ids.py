"""Producer ids of one data directory: no id is reserved twice, whatever fails."""

import errno

import pytest

from edge_broker.errors import StorageFault
from edge_broker.storage.metadata.entry_file import read_entry, write_entry
from edge_broker.storage.metadata.producer_ids import FILE, PRODUCER_IDS_RESERVED, ProducerIds
from edge_broker.testing.disk import SimulatedDisk
from tests.support.storage import failing


@pytest.fixture
def disk():
    disk = SimulatedDisk(1)
    disk.make_directory("/data")
    disk.sync_directory("/")
    write_entry(disk, "/data", FILE, 0)
    return disk


def read(disk):
    ids = ProducerIds(disk, "/data")
    ids.read()
    return ids


def test_blocks_follow_each_other_over_power_losses(disk):
    first = read(disk).reserve()
    disk.crash()
    ids = read(disk)
    assert (first, ids.reserve()) == (
        range(PRODUCER_IDS_RESERVED),
        range(PRODUCER_IDS_RESERVED, 2 * PRODUCER_IDS_RESERVED),
    )
    assert ids.end == 2 * PRODUCER_IDS_RESERVED


def test_ids_of_the_cluster_are_never_reserved(disk):
    ids = read(disk)
    ids.keep(5000)
    ids.keep(3000)
    disk.crash()
    assert read(disk).reserve().start == 5000


def test_a_failed_write_reserves_nothing(disk):
    ids = read(disk)
    disk.fault = failing("rename", FILE, errno.EIO)
    with pytest.raises(StorageFault, match=FILE):
        ids.reserve()
    with pytest.raises(StorageFault, match=FILE):
        ids.keep(10)
    assert ids.end == 0
    disk.fault = None
    assert ids.reserve().start == 0


def test_the_file_has_one_entry(disk):
    assert read_entry(disk, "/data", FILE) == "0"
    disk.remove(f"/data/{FILE}")
    with pytest.raises(StorageFault, match="is missing"):
        read(disk)
