"""The two files of confirmed ends: what a cut tears is one of two."""

from __future__ import annotations

import uuid

import pytest

from edge_broker.errors import StorageFault
from edge_broker.storage.files.atomic_files import encode_state
from edge_broker.storage.files.double_buffered_file import PAGE_BYTES
from edge_broker.storage.recovery.recovery_checkpoint import FILES, Position, PositionsFiles, read_positions
from edge_broker.testing.disk import SimulatedDisk

KEY = (uuid.UUID(int=7), 3)
FIRST, SECOND = (f"/data/{name}" for name in FILES)


def at(offset: int) -> dict[tuple[uuid.UUID, int], Position]:
    return {KEY: Position(1, 2, offset * 10, offset)}


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk(1)
    disk.make_directory("/data")
    disk.sync_directory("/")
    return disk


def opened(disk: SimulatedDisk) -> PositionsFiles:
    files = PositionsFiles(disk, "/data")
    files.read()
    return files


def test_the_files_take_turns_and_the_newer_one_counts(disk: SimulatedDisk) -> None:
    files = opened(disk)
    assert files.stored == {}
    for offset in range(1, 6):
        files.write(at(offset))
        disk.crash()
        assert read_positions(disk, "/data") == at(offset) == opened(disk).stored
    assert len(disk.content(FIRST)) == len(disk.content(SECOND)) == PAGE_BYTES


def test_once_both_are_there_a_write_makes_no_name_and_changes_no_size(disk: SimulatedDisk) -> None:
    files = opened(disk)
    files.write({**at(1), **{(uuid.UUID(int=n), n): Position(n, n, n, n) for n in range(500)}})
    files.write(at(2))
    sizes = len(disk.content(FIRST)), len(disk.content(SECOND))
    steps: list[str] = []
    disk.fault = lambda kind, path, size: steps.append(kind)
    for offset in (3, 4):
        files.write(at(offset))
    files.write(at(4))
    assert [step for step in steps if step != "read"] == ["write", "datasync"] * 2
    assert (len(disk.content(FIRST)), len(disk.content(SECOND))) == sizes
    assert sizes[0] > PAGE_BYTES
    assert read_positions(disk, "/data") == at(4)


@pytest.mark.parametrize("seed", range(30))
def test_whatever_a_cut_does_to_a_write_what_was_written_before_counts(seed: int) -> None:
    disk = SimulatedDisk(seed)
    disk.make_directory("/data")
    disk.sync_directory("/")
    files = opened(disk)
    for offset in range(1, 3 + seed % 3):
        files.write(at(offset))
    kept = files.stored
    disk.fault = lambda kind, path, size: (_ for _ in ()).throw(OSError(5, "EIO", path)) if kind == "datasync" else None
    with pytest.raises(OSError, match="EIO"):
        files.write(at(99))
    disk.crash()
    assert read_positions(disk, "/data") in (kept, at(99))
    files = opened(disk)
    files.write(at(100))
    disk.crash()
    assert opened(disk).stored == at(100)


def test_files_that_were_much_larger_once_do_not_cost_that_with_every_write(disk: SimulatedDisk) -> None:
    files = opened(disk)
    many = {(uuid.UUID(int=n), n): Position(n, n, n, n) for n in range(2000)}
    for offset in (1, 2):
        files.write({**at(offset), **many})
    assert len(disk.content(FIRST)) > 16 * PAGE_BYTES
    for offset in (3, 4, 5):
        files.write(at(offset))
        disk.crash()
        assert read_positions(disk, "/data") == at(offset)
    assert len(disk.content(FIRST)) == len(disk.content(SECOND)) == PAGE_BYTES


def test_a_write_that_failed_is_tried_again_in_the_same_file(disk: SimulatedDisk) -> None:
    files = opened(disk)
    files.write(at(1))
    files.write(at(2))
    disk.fault = lambda kind, path, size: (_ for _ in ()).throw(OSError(5, "EIO", path)) if kind == "write" else None
    for offset in (3, 4):
        with pytest.raises(OSError, match="EIO"):
            files.write(at(offset))
    disk.fault = None
    assert read_positions(disk, "/data") == at(2)
    files.write(at(5))
    assert read_positions(disk, "/data") == at(5)


def test_one_damaged_file_is_passed_over_and_two_are_a_fault(disk: SimulatedDisk) -> None:
    files = opened(disk)
    files.write(at(1))
    files.write(at(2))
    disk.flip(SECOND, 60)
    assert read_positions(disk, "/data") == at(1)
    disk.flip(FIRST, 60)
    with pytest.raises(StorageFault, match="CRC"):
        read_positions(disk, "/data")


def test_what_a_broker_before_wrote_is_understood(disk: SimulatedDisk) -> None:
    disk.put(FIRST, encode_state("positions", 1, [f"{KEY[0].hex} 3 1 2 70 7"]))
    files = opened(disk)
    assert files.stored == at(7)
    files.write(at(8))
    assert opened(disk).stored == at(8)
