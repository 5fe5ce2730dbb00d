"""The simulated disk itself: what a crash may leave and what it may not, and how faults look to who has a file open."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from edge_broker.testing.disk import PowerLoss, SimulatedDisk, SimulatedFile
from edge_broker.testing.pages import PAGE_BYTES

SEEDS = range(300)
OLD, NEW = b"o" * PAGE_BYTES, b"n" * PAGE_BYTES


def synced_file(disk: SimulatedDisk, content: bytes, path: str = "/a") -> SimulatedFile:
    file = disk.create(path)
    file.write(content, 0)
    file.datasync()
    disk.sync_directory("/")
    return file


def outcomes(prepare: Callable[[SimulatedDisk], object], path: str = "/a", *, ordered: bool = False) -> set[bytes]:
    """What is in a file after a crash, over many seeds."""
    found = set()
    for seed in SEEDS:
        disk = SimulatedDisk(seed, ordered=ordered)
        prepare(disk)
        disk.crash()
        found.add(disk.content(path) if disk.exists(path) else b"-")
    return found


def test_what_was_synced_stays() -> None:
    assert outcomes(lambda disk: synced_file(disk, OLD + NEW)) == {OLD + NEW}


def test_unsynced_pages_are_lost_kept_torn_or_zeroed_each_on_its_own() -> None:
    found = outcomes(lambda disk: synced_file(disk, OLD * 3).write(NEW * 3, 0))
    assert {len(content) for content in found} == {3 * PAGE_BYTES}
    pages = [[content[at : at + PAGE_BYTES] for at in range(0, 3 * PAGE_BYTES, PAGE_BYTES)] for content in found]
    assert [OLD, OLD, OLD] in pages
    assert [NEW, NEW, NEW] in pages
    assert any(first == OLD and NEW in rest for first, *rest in pages), "a later page survives where an earlier did not"
    assert any(bytes(PAGE_BYTES) in three for three in pages)
    assert any(0 < page.count(b"n") < PAGE_BYTES and page == page.replace(b"o", b"") + page.replace(b"n", b"")
               for three in pages for page in three), "torn"  # fmt: skip


def test_synced_bytes_of_a_page_that_is_appended_to_are_never_harmed() -> None:
    def append(disk: SimulatedDisk) -> None:
        file = synced_file(disk, b"o" * 1000)
        for at in range(1000, 9000, 500):
            file.write(b"n" * 500, at)

    found = outcomes(append)
    assert all(content.startswith(b"o" * 1000) for content in found)
    assert {b"o" * 1000, b"o" * 1000 + b"n" * 8000} <= found
    assert any(b"\0" in content and content.endswith(b"n") for content in found)
    assert len({len(content) for content in found}) > 10


def test_the_size_is_independent_of_the_pages() -> None:
    found = outcomes(lambda disk: synced_file(disk, b"").write(NEW * 3, 0))
    assert bytes(3 * PAGE_BYTES) in found, "the size is there and no page is"
    assert {0, PAGE_BYTES, 2 * PAGE_BYTES, 3 * PAGE_BYTES} <= {len(content) for content in found}


def test_a_truncation_is_durable_only_after_a_sync() -> None:
    def cut(disk: SimulatedDisk, *, sync: bool) -> None:
        file = synced_file(disk, OLD * 2)
        file.truncate(100)
        if sync:
            file.datasync()

    assert outcomes(lambda disk: cut(disk, sync=True)) == {OLD[:100]}
    assert {OLD * 2, OLD[:100]} <= outcomes(lambda disk: cut(disk, sync=False))


def two_names(disk: SimulatedDisk) -> None:
    disk.create("/a").datasync()
    disk.create("/b").datasync()


def names_left(prepare: Callable[[SimulatedDisk], object], *, ordered: bool) -> set[tuple[str, ...]]:
    found = set()
    for seed in SEEDS:
        disk = SimulatedDisk(seed, ordered=ordered)
        prepare(disk)
        disk.crash()
        found.add(tuple(sorted(disk.names("/"))))
    return found


def test_names_are_lost_each_on_its_own_without_their_directorys_sync() -> None:
    assert names_left(two_names, ordered=False) == {(), ("a",), ("b",), ("a", "b")}


def test_a_journal_keeps_names_in_order() -> None:
    def three(disk: SimulatedDisk) -> None:
        for name in "abc":
            disk.create(f"/{name}")

    assert names_left(three, ordered=True) == {(), ("a",), ("a", "b"), ("a", "b", "c")}


def test_a_journal_is_committed_by_the_sync_of_a_file_that_is_new_or_grew() -> None:
    assert names_left(two_names, ordered=True) == {("a", "b")}


def test_a_journal_is_not_committed_by_the_sync_of_a_file_overwritten_in_place() -> None:
    def overwrite(disk: SimulatedDisk) -> None:
        file = synced_file(disk, b"1234")
        disk.create("/b")
        file.write(b"4321", 0)
        file.datasync()

    assert names_left(overwrite, ordered=True) == {("a",), ("a", "b")}


@pytest.mark.parametrize("ordered", [False, True])
def test_a_rename_is_done_or_not_and_never_half(ordered: bool) -> None:
    def replace(disk: SimulatedDisk) -> None:
        synced_file(disk, b"old")
        disk.create("/.new").write(b"new", 0)
        disk.open("/.new").datasync()
        disk.sync_directory("/")
        disk.rename("/.new", "/a")

    assert outcomes(replace, ordered=ordered) == {b"old", b"new"}
    assert names_left(replace, ordered=ordered) == {(".new", "a"), ("a",)}


@pytest.mark.parametrize("ordered", [False, True])
def test_a_removed_file_may_come_back_until_its_directory_is_synced(ordered: bool) -> None:
    def remove(disk: SimulatedDisk) -> None:
        synced_file(disk, b"old")
        disk.remove("/a")

    def remove_synced(disk: SimulatedDisk) -> None:
        remove(disk)
        disk.sync_directory("/")

    assert outcomes(remove, ordered=ordered) == {b"old", b"-"}
    assert outcomes(remove_synced, ordered=ordered) == {b"-"}


def failing_sync(disk: SimulatedDisk, file: SimulatedFile, code: int = errno.EIO) -> None:
    def fault(kind: str, path: str, size: int) -> None:
        if kind == "datasync":
            raise OSError(code, "no", path)

    disk.fault = fault
    with pytest.raises(OSError, match="no"):
        file.datasync()
    disk.fault = None


def test_after_a_failed_sync_the_next_one_succeeds_without_the_pages() -> None:
    def fail_and_retry(disk: SimulatedDisk) -> None:
        file = synced_file(disk, OLD * 2)
        file.write(NEW * 2, 0)
        failing_sync(disk, file)
        assert file.read(2 * PAGE_BYTES, 0) == NEW * 2, "memory still shows what is not on the disk"
        file.datasync()

    assert outcomes(fail_and_retry) == {OLD * 2, OLD + NEW, NEW + OLD, NEW * 2}


def test_a_page_written_again_after_a_failed_sync_reaches_the_disk_whole() -> None:
    def again(disk: SimulatedDisk) -> None:
        file = synced_file(disk, OLD)
        file.write(NEW, 0)
        failing_sync(disk, file)
        file.write(b"!", 7)
        file.datasync()

    assert outcomes(again) == {NEW[:7] + b"!" + NEW[8:]}


def test_memory_that_lets_go_of_a_lost_page_shows_the_disk() -> None:
    seen = set()
    for seed in SEEDS:
        disk = SimulatedDisk(seed)
        file = synced_file(disk, OLD)
        file.write(NEW, 0)
        failing_sync(disk, file)
        file.forget_cached(0, PAGE_BYTES)
        seen.add(bytes(file.read(PAGE_BYTES, 0)))
    assert seen == {OLD, NEW}


def test_a_failed_write_back_is_told_once_and_only_to_who_had_the_file_open() -> None:
    disk = SimulatedDisk(1)
    first = synced_file(disk, OLD)
    second = disk.open("/a")
    first.write(NEW, 0)
    disk.fail_writeout("/a")
    disk.open("/a").datasync()
    for file in (first, second):
        with pytest.raises(OSError, match="Input/output"):
            file.datasync()
        file.datasync()


def test_a_full_disk_takes_what_fits_and_gives_room_back_after_a_durable_removal() -> None:
    disk = SimulatedDisk(1, capacity_bytes=4 * PAGE_BYTES)
    file = disk.create("/a")
    assert file.write(bytes(3 * PAGE_BYTES + 10), 0) == 3 * PAGE_BYTES + 10
    assert disk.space("/").free == 0
    assert file.write(bytes(PAGE_BYTES), 3 * PAGE_BYTES + 10) == PAGE_BYTES - 10
    with pytest.raises(OSError, match="No space"):
        file.write(b"x", 4 * PAGE_BYTES)
    file.write(b"in place", 0)
    disk.remove("/a")
    del file
    assert disk.space("/").free == 0, "the name may come back"
    assert disk.create("/b").write(bytes(PAGE_BYTES), 0) == PAGE_BYTES, "who needs room has names made durable"
    disk.crash()
    assert not disk.exists("/a")


def test_delayed_allocation_says_at_the_sync_that_there_is_no_room() -> None:
    disk = SimulatedDisk(1, capacity_bytes=PAGE_BYTES)
    disk.delayed = True
    file = disk.create("/a")
    assert file.write(bytes(2 * PAGE_BYTES), 0) == 2 * PAGE_BYTES
    with pytest.raises(OSError, match="No space"):
        file.datasync()


def test_reserved_blocks_are_taken_and_kept_for_their_file() -> None:
    disk = SimulatedDisk(1, capacity_bytes=3 * PAGE_BYTES)
    file, other = disk.create("/a"), disk.create("/b")
    assert file.reserve(0, 2 * PAGE_BYTES)
    assert file.size() == 0
    with pytest.raises(OSError, match="No space"):
        file.reserve(2 * PAGE_BYTES, 2 * PAGE_BYTES)
    assert other.write(bytes(2 * PAGE_BYTES), 0) == PAGE_BYTES
    assert file.write(bytes(2 * PAGE_BYTES), 0) == 2 * PAGE_BYTES
    file.truncate(0)
    assert other.write(bytes(2 * PAGE_BYTES), PAGE_BYTES) == 2 * PAGE_BYTES


def test_a_crash_in_a_write_may_keep_any_part_of_it() -> None:
    def interrupted(disk: SimulatedDisk) -> None:
        file = synced_file(disk, b"")
        disk.crash_at = disk.steps + 1
        with pytest.raises(PowerLoss):
            file.write(NEW, 0)

    found = outcomes(interrupted)
    assert b"" in found
    assert NEW in found


def test_a_fork_is_crashed_on_its_own() -> None:
    disk = SimulatedDisk(1, capacity_bytes=10 * PAGE_BYTES)
    disk.make_directory("/d")
    synced_file(disk, OLD, "/d/a").write(NEW, 0)
    disk.rename("/d/a", "/d/b")
    seen: set[str] = set()
    for seed in SEEDS:
        other = disk.fork(seed)
        assert other.content("/d/b") == NEW
        assert other.space("/") == disk.space("/")
        other.crash()
        seen.update(f"{name}:{other.content(f'/d/{name}')[:1]!r}" for name in (other.names("/d") if other.names("/")
                    else []))  # fmt: skip
    assert {"b:b'n'", "b:b'o'"} <= seen
    assert disk.content("/d/b") == NEW


def test_one_seed_is_one_disk() -> None:
    def left(seed: int) -> bytes:
        disk = SimulatedDisk(seed)
        synced_file(disk, OLD * 8).write(NEW * 8, 0)
        disk.crash()
        return disk.content("/a")

    assert [left(seed) for seed in range(20)] == [left(seed) for seed in range(20)]
