"""A disk keeps what only ZooKeeper knows of the topics, whatever a power cut leaves of its newest copy."""

from __future__ import annotations

import random

import pytest

from edge_broker.errors import StorageFault
from edge_broker.storage.files.atomic_files import with_head
from edge_broker.storage.metadata.cluster_copy import (
    FILE,
    ClusterCopy,
    CopiedDeletion,
    CopiedTopic,
    read_cluster_copy,
    write_cluster_copy,
)
from edge_broker.testing.disk import SimulatedDisk
from tests.support.storage import cut_off, failing

PATH = f"/data/{FILE}"
READINGS = CopiedTopic(
    "readings", "kUSr1o3mSvqPpNq5u4Cq5A", 4294967337, ((1, 2, 3), (2, 3, 1)), {"min.insync.replicas": "2"}
)
LEDGER = CopiedTopic("__edge_ledger", "3Zo0bS0kTk2g0u0l1Zc3xA", 4294967301, ((1,),), {})
SPACED = CopiedTopic("a", "AAAAAAAAAAAAAAAAAAAAAA", 12, ((3,),), {"x.note": "two  words\nand a line", "y": ""})
GONE = CopiedDeletion("old", "-_AAAAAAAAAAAAAAAAAAAA", 4294967340)
COPY = ClusterCopy(4294967350, (LEDGER, READINGS), (SPACED,), (GONE,))
GOLDEN = b"""drupelet cluster-copy 1 19d91248
as-of 4294967350
topic 3Zo0bS0kTk2g0u0l1Zc3xA 4294967301 __edge_ledger 1 {}
topic kUSr1o3mSvqPpNq5u4Cq5A 4294967337 readings 1,2,3;2,3,1 {"min.insync.replicas":"2"}
absent AAAAAAAAAAAAAAAAAAAAAA 12 a 3 {"x.note":"two  words\\nand a line","y":""}
deleted -_AAAAAAAAAAAAAAAAAAAA 4294967340 old
"""


def made(seed: int = 1, *, ordered: bool = True) -> SimulatedDisk:
    disk = SimulatedDisk(seed, ordered=ordered)
    disk.make_directory("/data")
    disk.sync_directory("/")
    return disk


@pytest.mark.parametrize("copy", [COPY, ClusterCopy(), ClusterCopy(7, (SPACED,))])
def test_what_is_written_is_read(copy: ClusterCopy) -> None:
    disk = made()
    write_cluster_copy(disk, "/data", copy)
    disk.kill()
    assert read_cluster_copy(disk, "/data") == copy


def test_its_bytes_are_those_of_formats() -> None:
    disk = made()
    write_cluster_copy(disk, "/data", COPY)
    file = disk.open(PATH)
    data = bytes(file.read(file.size(), 0))
    assert data == GOLDEN


@pytest.mark.parametrize("seed", range(40))
def test_a_power_cut_leaves_the_former_copy_or_the_new_one(seed: int) -> None:
    disk, dice = made(seed, ordered=bool(seed % 2)), random.Random(seed)
    before = ClusterCopy(7, (SPACED,))
    write_cluster_copy(disk, "/data", before)
    whole = not cut_off(disk, dice.randrange(1, 6), lambda: write_cluster_copy(disk, "/data", COPY))
    disk.kill() if dice.random() < 0.3 else disk.crash()
    disk.crash_at = -1
    found = read_cluster_copy(disk, "/data")
    assert found == COPY if whole else found in (before, COPY)


def test_a_disk_that_refuses_keeps_the_former_copy() -> None:
    disk = made()
    write_cluster_copy(disk, "/data", COPY)
    disk.fault = failing("datasync")
    with pytest.raises(StorageFault, match="broken"):
        write_cluster_copy(disk, "/data", ClusterCopy())
    disk.fault = None
    assert read_cluster_copy(disk, "/data") == COPY


@pytest.mark.parametrize(
    "body",
    [
        "",
        "as-of x\n",
        "topic a 1 b 1 {}\n",
        "as-of 1\ntopic a 1 b 1\n",
        "as-of 1\ntopic a 1 b 1 []\n",
        "as-of 1\ntopic a 1 b , {}\n",
        "as-of 1\ndeleted a 1\n",
        "as-of 1\nmade a 1 b\n",
    ],
)
def test_a_damaged_file_says_what_to_do(body: str) -> None:
    disk = made()
    disk.put(PATH, with_head("cluster-copy", 1, body.encode()))
    with pytest.raises(StorageFault, match="remove it: the broker writes it again"):
        read_cluster_copy(disk, "/data")
