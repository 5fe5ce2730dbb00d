"""Another file with the inode and the beginning of a followed one: its lines are read, and what is lost is reported.

A program that writes the same header into each file, as CSV loggers do, gives all of them the same first 256 bytes. An
inode comes back with the next file, and stays where a program truncates its file. `_last` tells such files.
"""

from __future__ import annotations

import gzip
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.sources.file_reading.places import FamilyState, Line, UnreadRest, from_json, to_json
from gateway.sources.files import family
from gateway.sources.files.tail import Tail
from tests.support.gateway.followed_file import append, follow, read_all, texts
from tests.support.gateway.rotated_file import compress, line_texts, lost_bytes, rotate, saved

HEADER = b"#" * 90 + b"\n"
HEADERS = 3 * HEADER  # more than HEAD_BYTES_MAX


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "app.log"


def rows(first: int, count: int) -> bytes:
    return b"".join(b"row %d\n" % number for number in range(first, first + count))


def row_texts(first: int, count: int) -> list[bytes]:
    return rows(first, count).splitlines()


def test_a_longer_file_with_the_inode_of_one_that_was_removed_while_stopped_is_another_file(log: Path) -> None:
    log.write_bytes(HEADERS + rows(0, 3))
    state = saved(read_all(follow(log)))
    log.write_bytes(HEADERS + rows(10, 9))
    items = read_all(follow(log, state))
    assert lost_bytes(items) == [None]
    assert line_texts(items) == HEADERS.splitlines() + row_texts(10, 9)


def test_a_longer_file_with_the_inode_of_a_rotated_one_that_was_read_is_another_file(log: Path) -> None:
    log.write_bytes(HEADERS + rows(0, 3))
    tail = follow(log)
    first = read_all(tail)
    rotate(log, 9)
    append(log, HEADERS + rows(3, 1))
    first += read_all(tail)
    assert len(first) == 2 * 3 + 4
    log.with_name("app.log.1").write_bytes(HEADERS + rows(10, 9))
    tail._family._signature = None
    items = read_all(tail)
    assert line_texts(items) == HEADERS.splitlines() + row_texts(10, 9)


def test_a_copy_with_the_same_header_is_not_the_copy_of_what_was_read(log: Path) -> None:
    log.write_bytes(HEADERS + rows(0, 3))
    state = saved(read_all(follow(log)))
    shutil.copy(log, log.with_name("app.log.1"))
    log.write_bytes(HEADERS + rows(10, 9))
    log.with_name("app.log.1").unlink()
    shutil.copy(log, log.with_name("app.log.1"))
    log.write_bytes(rows(20, 1))
    items = read_all(follow(log, state))
    assert lost_bytes(items) == [None]
    assert line_texts(items) == [*HEADERS.splitlines(), *row_texts(10, 9), *row_texts(20, 1)]


def test_a_compressed_file_with_the_same_header_is_not_that_which_was_read(log: Path) -> None:
    log.write_bytes(HEADERS + rows(0, 3))
    state = saved(read_all(follow(log)))
    log.unlink()
    log.with_name("app.log.1.gz").write_bytes(gzip.compress(HEADERS + rows(10, 9)))
    log.write_bytes(rows(20, 1))
    items = read_all(follow(log, state))
    assert lost_bytes(items) == [None]
    assert line_texts(items) == [*HEADERS.splitlines(), *row_texts(10, 9), *row_texts(20, 1)]


def test_a_file_of_which_nothing_was_read_since_the_start_at_its_end_is_told_too(log: Path) -> None:
    log.write_bytes(HEADERS + rows(0, 3))
    tail = follow(log, start_at_end=True)
    assert read_all(tail) == []
    assert tail.state is not None
    state = from_json(to_json(tail.state))
    log.write_bytes(HEADERS + rows(10, 9))
    items = read_all(follow(log, state))
    assert lost_bytes(items) == [None]
    assert line_texts(items) == HEADERS.splitlines() + row_texts(10, 9)


def test_a_rotated_file_that_counted_as_read_is_told_too(log: Path) -> None:
    log.write_bytes(HEADERS + rows(0, 3))
    rotate(log, 9)
    append(log, rows(3, 1))
    state = saved(read_all(follow(log)))
    log.with_name("app.log.1").write_bytes(HEADERS + rows(10, 9))
    assert line_texts(read_all(follow(log, state))) == HEADERS.splitlines() + row_texts(10, 9)


@pytest.mark.parametrize("content", [rows(0, 3), HEADERS + rows(0, 3), b"x" * 500 + b"\n", b"\0" * 600 + b"row 0\n"])
def test_the_same_file_that_grew_is_read_on(log: Path, content: bytes) -> None:
    log.write_bytes(content)
    state = saved(read_all(follow(log)))
    append(log, rows(5, 2))
    rotate(log, 9)
    append(log, rows(7, 1))
    assert texts(read_all(follow(log, state))) == row_texts(5, 3)


def test_a_power_cut_that_emptied_the_last_block_leaves_the_same_file(log: Path) -> None:
    log.write_bytes(HEADERS + rows(0, 200))
    state = saved(read_all(follow(log)))
    with log.open("r+b") as file:
        file.seek(512)
        file.write(bytes(log.stat().st_size - 512))
    append(log, rows(200, 1))
    assert texts(read_all(follow(log, state))) == row_texts(200, 1)


def test_a_state_without_the_last_bytes_is_taken_by_its_beginning(log: Path) -> None:
    log.write_bytes(HEADERS + rows(0, 3))
    content = to_json(saved(read_all(follow(log))))
    del content["last_bytes"], content["last_crc32"]
    append(log, rows(3, 1))
    assert texts(read_all(follow(log, from_json(content)))) == row_texts(3, 1)


def test_a_stop_between_any_two_lines_keeps_what_tells_the_file(log: Path) -> None:
    log.write_bytes(HEADERS + rows(0, 3))
    for item in read_all(follow(log)):
        assert isinstance(item, Line)
        later = read_all(follow(log, from_json(to_json(item.after))))
        assert not [one for one in later if isinstance(one, UnreadRest)]
        assert len(later) == HEADERS.count(b"\n") + 3 - (log.read_bytes()[: item.after.place.position].count(b"\n"))


@pytest.mark.parametrize("begins", [b"", b"2\n"])
def test_a_file_that_takes_over_the_inode_of_one_that_was_never_opened_is_the_newest(log: Path, begins: bytes) -> None:
    """Its last line is being written: it is no rotated file's, and is taken once it is whole."""
    log.write_bytes(b"1\n")
    tail = follow(log)
    assert texts(read_all(tail)) == [b"1"]
    rotate(log, 9)
    append(log, begins)
    with pytest.MonkeyPatch.context() as patch:  # the file is renamed between the scan and the opening
        patch.setattr(family, "note_head_of", lambda _file: None)
        patch.setattr(family.Family, "_open", lambda _family, _file: None)
        tail.find_files()
        log.rename(log.with_name("kept"))  # for its inode
        for content in (b"3\n", b"4\n"):
            log.with_name("app.log.1").unlink()
            log.write_bytes(content)
            rotate(log, 1)
            tail.find_files()
    log.unlink()
    log.with_name("kept").rename(log)
    log.write_bytes(b"5\nbegun")
    items = read_all(tail)
    append(log, b" and ended\n")
    items += read_all(tail)
    assert line_texts(items) == [b"4", b"5", b"begun and ended"]


def test_a_file_that_was_missed_while_it_was_renamed_back_is_the_newest(log: Path) -> None:
    log.write_bytes(b"1\n")
    tail = follow(log)
    items = read_all(tail)
    log.rename(log.with_name("app.log.1"))
    log.write_bytes(b"2\n")
    items += read_all(tail)
    log.unlink()
    log.with_name("app.log.1").rename(log)
    append(log, b"3\nbegun")
    items += read_all(tail)
    append(log, b" and ended\n")
    items += read_all(tail)
    assert line_texts(items) == [b"1", b"2", b"3", b"begun and ended"]


def given_to(path: Path, state: FamilyState, content: bytes) -> FamilyState:
    """Return the state of now, where the file that was read last is gone and another program's `path` has its inode."""
    path.write_bytes(content)
    return replace(state, place=replace(state.place, inode=path.stat().st_ino))


@pytest.mark.parametrize("content", [b"last\n", b"other\n", b""])
@pytest.mark.parametrize("is_compressed", [False, True], ids=["as it was", "compressed"])
def test_another_program_s_file_with_the_inode_of_one_that_is_gone_is_not_read(
    log: Path, content: bytes, *, is_compressed: bool
) -> None:
    """Beside the path lie files that nobody asked for: their lines would come twice, or where they must not."""
    log.write_bytes(b"first\n")
    state = saved(read_all(follow(log)))
    append(log, b"more\n")
    log.rename(log.with_name("app.log.1"))
    log.write_bytes(b"last\n")
    shutil.copy2(log.with_name("app.log.1"), log.with_name("app.log.1.new"))
    log.with_name("app.log.1.new").rename(log.with_name("app.log.1"))
    if is_compressed:
        compress(log.with_name("app.log.1"))
    state = given_to(log.with_name("private.txt"), state, content)
    assert texts(read_all(follow(log, state))) == [b"more", b"last"]


def test_a_file_with_the_inode_of_an_older_one_is_not_read(log: Path) -> None:
    log.write_bytes(b"first\n")
    tail = follow(log)
    items = read_all(tail)
    log.rename(log.with_name("app.log.1"))
    log.write_bytes(b"second\n")
    items += read_all(tail)
    state = saved(items)
    log.with_name("app.log.1").unlink()
    other = log.with_name("private.txt")
    other.write_bytes(b"private\n")
    older = [replace(one, place=replace(one.place, inode=other.stat().st_ino)) for one in state.older]
    assert older
    append(log, b"third\n")
    assert texts(read_all(follow(log, replace(state, older=tuple(older))))) == [b"third"]


@pytest.mark.parametrize("is_alone", [False, True], ids=["one of several paths", "the only path"])
def test_a_place_for_rotated_files_keeps_those_of_other_paths_apart(
    log: Path, tmp_path: Path, *, is_alone: bool
) -> None:
    log.write_bytes(b"first\n")
    state = saved(read_all(follow(log)))
    log.unlink()
    log.write_bytes(b"last\n")
    old = tmp_path / "old"
    old.mkdir()
    state = given_to(old / "other-1", state, b"other\n")
    tail = Tail(log, state, line_bytes_max=100, quiet_s=0, rotated=str(old / "*"), is_alone=is_alone)
    found = line_texts([item for _ in range(20) for item in tail.read()])
    assert found == ([b"other", b"last"] if is_alone else [b"last"])
