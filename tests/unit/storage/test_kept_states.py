"""A data directory knows by which state of each partition it acted, whatever a power cut leaves of the newest one."""

from __future__ import annotations

import pytest

from edge_broker.errors import StorageFault
from edge_broker.storage.files.atomic_files import encode_state
from edge_broker.storage.metadata.kept_states import FILE, KIND, KeptState, LogId, read_kept_states, write_kept_states
from edge_broker.testing.disk import SimulatedDisk

PATH = f"/data/{FILE}"
BEFORE = {LogId("a" * 22, 0): KeptState("s5", 5, named=True)}
AFTER = {
    LogId("a" * 22, 0): KeptState("s6", 6, named=False, epoch_base=1 << 40),
    LogId("b" * 22, 11): KeptState("x1", 1, named=True),
}


def disk_with_directory(seed: int) -> SimulatedDisk:
    disk = SimulatedDisk(seed, ordered=bool(seed % 2))
    disk.make_directory("/data")
    disk.sync_directory("/")
    return disk


def test_a_directory_without_the_file_has_kept_nothing() -> None:
    assert read_kept_states(disk_with_directory(1), "/data", (5,)) == {}


def test_states_are_read_as_they_were_written() -> None:
    disk = disk_with_directory(1)
    write_kept_states(disk, "/data", AFTER, 5)
    assert read_kept_states(disk, "/data", (3, 5)) == AFTER
    write_kept_states(disk, "/data", {}, 5)
    assert read_kept_states(disk, "/data", (3, 5)) == {}


@pytest.mark.parametrize("seed", range(20))
def test_what_was_written_survives_a_power_cut(seed: int) -> None:
    disk = disk_with_directory(seed)
    write_kept_states(disk, "/data", BEFORE, 5)
    write_kept_states(disk, "/data", AFTER, 5)
    disk.crash()
    assert read_kept_states(disk, "/data", (3, 5)) == AFTER


def test_a_flipped_bit_stops_the_start() -> None:
    disk = disk_with_directory(1)
    write_kept_states(disk, "/data", BEFORE, 5)
    disk.flip(PATH, len(disk.content(PATH)) - 3)
    with pytest.raises(StorageFault, match="CRC"):
        read_kept_states(disk, "/data", (3, 5))


@pytest.mark.parametrize(
    "line",
    [
        "state a 0 s5 5 perhaps 0",
        "state a 0 s5 5 named",
        "state a x s5 5 named 0",
        "state a 0  5 named 0",
        "epoch a 0 s5 5 named 0",
        "state a 0 s5 five named 0",
        "state a 0 s5 5 named base",
    ],
)
def test_a_line_that_is_none_stops_the_start(line: str) -> None:
    disk = disk_with_directory(1)
    disk.put(PATH, encode_state(KIND, 1, ["epoch 5", line]))
    with pytest.raises(StorageFault, match="kept-states"):
        read_kept_states(disk, "/data", (3, 5))


def test_a_newer_format_stops_the_start() -> None:
    disk = disk_with_directory(1)
    disk.put(PATH, encode_state(KIND, 2, []))
    with pytest.raises(StorageFault, match="newer"):
        read_kept_states(disk, "/data", (3, 5))


@pytest.mark.parametrize("lines", [[], ["state a 0 s5 5 named 0"], ["epoch x"], ["epoch 5 6"]])
def test_a_file_without_the_registration_stops_the_start(lines: list[str]) -> None:
    disk = disk_with_directory(1)
    disk.put(PATH, encode_state(KIND, 1, lines))
    with pytest.raises(StorageFault, match="kept-states"):
        read_kept_states(disk, "/data", (5,))


@pytest.mark.parametrize(
    ("epochs", "count"),
    [
        ((3, 5), True),
        ((3, 5, 7), False),  # a release that does not know the file was registered as 7
        ((5, 2), False),  # the same over an older copy of ZooKeeper's data
        ((5, 2, 5), True),  # zxids repeat after an older copy was put back
        ((3,), True),  # the power went before 5 was recorded
        ((), True),
    ],
)
def test_states_count_unless_an_older_release_acted_since(epochs: tuple[int, ...], count: bool) -> None:
    disk = disk_with_directory(1)
    write_kept_states(disk, "/data", AFTER, 5)
    assert bool(read_kept_states(disk, "/data", epochs)) is count
