"""Following one growing file, on real files: lines, rotation, truncation, and what cannot be found again."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from gateway.sources.file_reading.interruption import InterruptedRead
from gateway.sources.file_reading.open_file import OpenFile
from gateway.sources.file_reading.places import FamilyState, Item, Line, Place, TooLong, UnreadRest
from gateway.sources.files.tail import CHUNK_BYTES, Tail
from tests.support.gateway.followed_file import LINE_BYTES_MAX, append, follow, read_all, texts


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "app.log"


def test_lines_come_verbatim_with_their_positions(log: Path) -> None:
    log.write_bytes(b"one\n\ntwo\r\n\xff\x00\n")
    lines = [item for item in read_all(follow(log)) if isinstance(item, Line)]
    assert [(line.text, line.position, line.after.place.position) for line in lines] == [
        (b"one", 0, 4),
        (b"", 4, 5),
        (b"two\r", 5, 10),
        (b"\xff\x00", 10, 13),
    ]
    assert {line.inode for line in lines} == {log.stat().st_ino}


def test_the_first_read_only_finds_the_place(log: Path) -> None:
    log.write_bytes(b"one\n")
    tail = follow(log)
    assert tail.read() == []
    assert tail.place is not None
    assert tail.place.position == 0


def test_a_partial_line_is_waited_for(log: Path) -> None:
    log.write_bytes(b"one\ntw")
    tail = follow(log)
    assert texts(read_all(tail)) == [b"one"]
    append(log, b"o\n")
    assert texts(read_all(tail)) == [b"two"]


def test_a_file_that_is_not_there_yet_is_waited_for(log: Path) -> None:
    tail = follow(log)
    assert read_all(tail) == []
    log.write_bytes(b"one\n")
    assert texts(read_all(tail)) == [b"one"]


def test_starting_at_the_end_leaves_out_whole_lines_only(log: Path) -> None:
    log.write_bytes(b"old\npart")
    tail = follow(log, start_at_end=True)
    assert read_all(tail) == []
    append(log, b"ial\n")
    assert texts(read_all(tail)) == [b"partial"]


def test_one_read_is_bounded(log: Path) -> None:
    log.write_bytes(b"x" * 63 + b"\n" + b"y\n" * CHUNK_BYTES)
    tail = follow(log)
    tail.read()
    assert len(tail.read()) <= CHUNK_BYTES // 2
    assert len(read_all(tail)) > CHUNK_BYTES // 2


@pytest.mark.parametrize("length", [LINE_BYTES_MAX + 1, 5 * CHUNK_BYTES])
def test_a_line_that_is_too_long_is_counted_and_its_neighbours_come(log: Path, length: int) -> None:
    log.write_bytes(b"a" * LINE_BYTES_MAX + b"\n" + b"b" * length + b"\nc\n")
    first, second, third = read_all(follow(log))
    assert isinstance(first, Line)
    assert isinstance(third, Line)
    assert isinstance(second, TooLong)
    assert (second.bytes, second.position, third.text) == (length, LINE_BYTES_MAX + 1, b"c")
    assert third.after.place.position == log.stat().st_size


def test_a_renamed_file_is_read_to_its_end_even_by_a_late_writer(log: Path) -> None:
    log.write_bytes(b"one\n")
    tail = follow(log)
    assert texts(read_all(tail)) == [b"one"]
    with log.open("ab") as late:
        log.rename(log.with_name("app.log.1"))
        log.write_bytes(b"three\n")
        assert tail.read() == []
        late.write(b"two")
    assert texts(read_all(tail)) == [b"two", b"three"]


def test_the_copy_of_copytruncate_is_read_to_its_end(log: Path) -> None:
    log.write_bytes(b"one\n")
    tail = follow(log)
    assert texts(read_all(tail)) == [b"one"]
    append(log, b"two\n")
    shutil.copy(log, log.with_name("app.log.1"))
    os.truncate(log, 0)
    append(log, b"three, which is longer than what was there before\n")
    assert texts(read_all(tail)) == [b"two", b"three, which is longer than what was there before"]


def test_several_rotations_while_away_are_caught_up_in_order(log: Path) -> None:
    log.write_bytes(b"1\n2\n")
    first = read_all(follow(log))[0]
    assert isinstance(first, Line)
    for name in ("3", "4", "5"):
        for number in (3, 2, 1):
            older = log.with_name(f"app.log.{number}")
            if older.exists():
                older.rename(log.with_name(f"app.log.{number + 1}"))
        log.rename(log.with_name("app.log.1"))
        log.write_bytes(name.encode() + b"\n")
    assert texts(read_all(follow(log, first.after))) == [b"2", b"3", b"4", b"5"]


def test_an_unread_file_that_is_gone_is_reported_and_the_next_one_read(log: Path) -> None:
    log.write_bytes(b"one\n")
    (line,) = read_all(follow(log))
    assert isinstance(line, Line)
    log.unlink()
    os.utime(log.parent)
    log.write_bytes(b"another\n")
    os.utime(log, ns=(line.after.place.modified_ns + 1, line.after.place.modified_ns + 1))
    gone, another = read_all(follow(log, line.after))
    assert isinstance(gone, UnreadRest)
    assert gone.place == line.after.place
    assert isinstance(another, Line)
    assert another.text == b"another"


def test_a_truncation_without_a_copy_is_reported(log: Path) -> None:
    log.write_bytes(b"one\n")
    tail = follow(log)
    (line,) = read_all(tail)
    assert isinstance(line, Line)
    os.truncate(log, 0)
    append(log, b"2\n")
    gone, another = read_all(tail)
    assert isinstance(gone, UnreadRest)
    assert gone.place == line.after.place
    assert isinstance(another, Line)
    assert (another.text, another.position) == (b"2", 0)


def test_a_reused_inode_is_not_taken_for_the_same_file(log: Path) -> None:
    log.write_bytes(b"one\n")
    (line,) = read_all(follow(log))
    assert isinstance(line, Line)
    other = Place(line.inode, 4, 4, line.after.place.head_crc32 ^ 1, line.after.place.modified_ns - 1)
    assert [type(item) for item in read_all(follow(log, FamilyState(other)))] == [UnreadRest, Line]


def test_what_is_not_a_regular_file_is_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="pipe is a FIFO: name a regular file"):
        follow(tmp_path / "pipe").read()


def test_rotated_files_are_caught_up_while_the_next_file_is_yet_to_be_made(log: Path) -> None:
    log.write_bytes(b"1\n")
    tail = follow(log)
    assert texts(read_all(tail)) == [b"1"]
    log.rename(log.with_name("app.log.2"))
    log.with_name("app.log.1").write_bytes(b"2\n")
    assert texts(read_all(tail)) == [b"2"]
    log.write_bytes(b"3\n")
    assert texts(read_all(tail)) == [b"3"]


def test_a_rotated_file_is_waited_for_by_the_clock_however_often_it_is_read(log: Path) -> None:
    now_s = 0.0
    log.write_bytes(b"one\n")
    tail = Tail(log, None, line_bytes_max=LINE_BYTES_MAX, quiet_s=2, clock=lambda: now_s)
    assert texts(read_all(tail)) == [b"one"]
    log.rename(log.with_name("app.log.1"))
    log.write_bytes(b"two\n")
    assert read_all(tail) == []
    now_s = 1.9
    assert read_all(tail) == []
    now_s = 2.0
    assert texts(read_all(tail)) == [b"two"]


def test_growth_begins_the_wait_again(log: Path) -> None:
    now_s = 0.0
    log.write_bytes(b"one\n")
    tail = Tail(log, None, line_bytes_max=LINE_BYTES_MAX, quiet_s=2, clock=lambda: now_s)
    read_all(tail)
    log.rename(log.with_name("app.log.1"))
    log.write_bytes(b"four\n")
    read_all(tail)
    now_s = 1.5
    append(log.with_name("app.log.1"), b"two\n")
    assert texts(read_all(tail)) == [b"two"]
    now_s = 3.0
    append(log.with_name("app.log.1"), b"three\n")
    assert texts(read_all(tail)) == [b"three"]
    now_s = 4.9
    assert read_all(tail) == []
    now_s = 5.0
    assert texts(read_all(tail)) == [b"four"]


@pytest.mark.parametrize("error", [partial(OSError, errno.EIO, "Input/output error"), InterruptedRead])
def test_a_loss_that_is_found_with_an_error_is_reported(
    log: Path, monkeypatch: pytest.MonkeyPatch, error: Callable[[], Exception]
) -> None:
    log.write_bytes(b"1\n")
    state = read_all(follow(log))[-1].after
    append(log, b"2\n")
    log.unlink()
    log.write_bytes(b"3\n")
    tail = follow(log, state)
    items: list[Item] = []
    read = OpenFile.read

    def read_or_fail(file: OpenFile, count: int, position: int) -> bytes:
        if count == CHUNK_BYTES:
            raise error()
        return read(file, count, position)

    with monkeypatch.context() as patch:
        patch.setattr(OpenFile, "read", read_or_fail)
        for _ in range(6):
            with contextlib.suppress(OSError, InterruptedRead):
                items += tail.read()
    assert [item.why for item in items if isinstance(item, UnreadRest)] == [
        "the file was removed before its end was read"
    ]
    assert texts(read_all(tail)) == [b"3"]
