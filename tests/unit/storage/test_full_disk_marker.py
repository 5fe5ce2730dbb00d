"""The marker of a full disk is on the disk before anything goes by it, and goes once there was room for a while."""

from __future__ import annotations

import errno

import pytest

from edge_broker.storage.files.atomic_files import read_state
from edge_broker.storage.files.data_age import Now
from edge_broker.storage.maintenance.full_disk_marker import FILE, FullDiskMarker
from edge_broker.testing.disk import SimulatedDisk

KEPT_MS = 60_000
PATH = f"/data/{FILE}"


def disk_with_directory(seed: int = 1) -> SimulatedDisk:
    disk = SimulatedDisk(seed, ordered=bool(seed % 2))
    disk.make_directory("/data")
    disk.sync_directory("/")
    return disk


def at(age_ms: int) -> Now:
    return Now(0, age_ms, trusted=True, boot_id="boot")


def test_a_disk_that_was_never_full_has_no_marker() -> None:
    disk = disk_with_directory()
    marker, steps = FullDiskMarker(disk, "/data", KEPT_MS), disk.steps
    for age_ms in range(0, 3 * KEPT_MS, 1000):
        marker.update(at(age_ms), is_full=False)
    assert (disk.steps, disk.names("/data"), marker.was_full) == (steps, [], False)


@pytest.mark.parametrize("seed", range(20))
def test_the_marker_survives_a_power_cut(seed: int) -> None:
    disk = disk_with_directory(seed)
    marker = FullDiskMarker(disk, "/data", KEPT_MS)
    marker.update(at(0), is_full=True)
    disk.crash()
    marker = FullDiskMarker(disk, "/data", KEPT_MS)
    assert (marker.was_full, read_state(disk, PATH, FILE)) == (True, [])


def test_the_marker_is_made_once_and_goes_when_the_disk_has_had_room_for_long_enough() -> None:
    disk = disk_with_directory()
    marker = FullDiskMarker(disk, "/data", KEPT_MS)
    marker.update(at(0), is_full=True)
    steps = disk.steps
    marker.update(at(1000), is_full=True)
    marker.update(at(2000), is_full=False)
    marker.update(at(3000), is_full=True)
    marker.update(at(4000), is_full=False)
    marker.update(at(4000 + KEPT_MS - 1), is_full=False)
    assert (disk.steps, disk.exists(PATH)) == (steps, True), "the minute began again"
    marker.update(at(4000 + KEPT_MS), is_full=False)
    assert not disk.exists(PATH)
    marker.update(at(5000 + KEPT_MS), is_full=True)
    assert disk.exists(PATH)


def test_the_minute_begins_again_with_each_start() -> None:
    disk = disk_with_directory()
    FullDiskMarker(disk, "/data", KEPT_MS).update(at(0), is_full=True)
    for start_ms in (100_000, 200_000):
        marker = FullDiskMarker(disk, "/data", KEPT_MS)
        for age_ms in (start_ms, start_ms + KEPT_MS - 1):
            marker.update(at(age_ms), is_full=False)
        assert marker.was_full
        assert disk.exists(PATH)


@pytest.mark.parametrize("kind", ["create", "write", "rename", "sync_directory"])
def test_a_marker_that_finds_no_space_is_reported_once_and_tried_again(kind: str) -> None:
    disk, failures = disk_with_directory(), list[OSError]()
    marker = FullDiskMarker(disk, "/data", KEPT_MS, failures.append)

    def no_space(step: str, path: str, _size: int) -> None:
        if step == kind:
            raise OSError(errno.ENOSPC, "No space left on device", path)

    disk.fault = no_space
    for age_ms in (0, 1000, 2000):
        marker.update(at(age_ms), is_full=True)
    assert [error.errno for error in failures] == [errno.ENOSPC]
    disk.fault = None
    marker.update(at(3000), is_full=True)
    disk.crash()
    assert disk.exists(PATH)


def test_a_removal_that_fails_is_tried_again() -> None:
    disk, failures = disk_with_directory(), list[OSError]()
    marker = FullDiskMarker(disk, "/data", KEPT_MS, failures.append)
    marker.update(at(0), is_full=True)

    def refused(step: str, path: str, _size: int) -> None:
        if step == "remove":
            raise OSError(errno.EIO, "Input/output error", path)

    disk.fault = refused
    for age_ms in (0, KEPT_MS, KEPT_MS + 1000):
        marker.update(at(age_ms), is_full=False)
    assert len(failures) == 1
    disk.fault = None
    marker.update(at(KEPT_MS + 2000), is_full=False)
    assert not disk.exists(PATH)
    marker.update(at(KEPT_MS + 3000), is_full=True)
    assert disk.exists(PATH)
