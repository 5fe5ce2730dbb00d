"""Lines that a program writes to a rotated file after its end was read: a program that does not reopen its file.

The file may be deleted, renamed or compressed before the next look at it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.sources.files import family
from gateway.sources.files.tail import Tail
from tests.support.gateway.followed_file import append, follow, read_all, texts
from tests.support.gateway.rotated_file import compress, rotate, saved


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "app.log"


def with_finished_file(log: Path) -> tuple[Tail, Path]:
    """Return a tail that has read app.log.1 to its end, and app.log."""
    log.write_bytes(b"1\n")
    tail = follow(log)
    assert texts(read_all(tail)) == [b"1"]
    rotate(log, 9)
    append(log, b"2\n")
    assert texts(read_all(tail)) == [b"2"]
    return tail, log.with_name("app.log.1")


def test_a_line_written_late_to_a_file_that_is_deleted_at_once_is_read(log: Path) -> None:
    tail, finished = with_finished_file(log)
    append(finished, b"late\n")
    finished.unlink()
    assert texts(read_all(tail)) == [b"late"]


def test_a_line_written_late_to_a_file_that_is_compressed_at_once_is_read(log: Path) -> None:
    tail, finished = with_finished_file(log)
    append(finished, b"late\n")
    compress(finished)
    assert texts(read_all(tail)) == [b"late"]
    rotate(log, 9)
    append(log, b"3\n")
    assert texts(read_all(tail)) == [b"3"]


def test_a_line_written_late_to_a_file_that_has_no_name_any_more_is_read(log: Path) -> None:
    tail, finished = with_finished_file(log)
    with finished.open("ab") as late:
        finished.unlink()
        tail.find_files()
        late.write(b"late\n")
        late.flush()
        assert texts(read_all(tail)) == [b"late"]


def test_a_late_line_is_seen_at_the_next_look(log: Path) -> None:
    tail, finished = with_finished_file(log)
    append(finished, b"late\n")
    assert texts(tail.read()) == [b"late"]


def test_a_compressed_copy_of_a_file_that_is_held_open_is_not_read_again(log: Path) -> None:
    tail, finished = with_finished_file(log)
    compress(finished)
    assert read_all(tail) == []
    rotate(log, 9)
    append(log, b"3\n")
    state = saved(read_all(tail))
    assert read_all(follow(log, state)) == []


def open_names() -> list[str]:
    return [os.readlink(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd") if _is_open(number)]


def _is_open(number: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{number}")


def test_few_files_that_are_read_stay_open_and_deleted_ones_give_their_space_back(log: Path) -> None:
    log.write_bytes(b"0\n")
    tail = follow(log)
    for number in range(1, 9):
        read_all(tail)
        rotate(log, 9)
        append(log, b"%d\n" % number)
    read_all(tail)
    held = [name for name in open_names() if name.startswith(str(log))]
    assert len(held) == 1 + family.FINISHED_HELD_MAX
    for number in range(1, 9):
        log.with_name(f"app.log.{number}").unlink()
    for _ in range(family.MISSED_LOOKS_MIN + 1):
        tail._family._signature = None
        tail.find_files()
    assert [name for name in open_names() if name.startswith(str(log))] == [str(log)]
