"""Rotations of all kinds against the tail: renamed, copied, compressed, deleted, while it reads and while it does not.

Invariants:
- every line that was written is a line that is read, once, in order, or part of what is reported as gone;
- nothing is reported as gone that was read.
"""

from __future__ import annotations

import os
import shutil
from itertools import count
from pathlib import Path

import pytest

from gateway.metrics import Metrics
from gateway.sources.file_reading.places import FamilyState, Line, TooLong, UnreadRest, from_json, to_json
from gateway.sources.files import family
from gateway.sources.files.files import FileSource
from gateway.sources.files.tail import Tail
from tests.simulation.rotating_tools import UNREADABLE
from tests.support.gateway.followed_file import append, follow, read_all, texts
from tests.support.gateway.publisher import FakePublisher, config
from tests.support.gateway.rotated_file import compress, copy_and_truncate, line_texts, lost_bytes, rotate, saved


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "app.log"


def test_files_that_are_deleted_unread_were_opened_in_time(log: Path) -> None:
    log.write_bytes(b"0\n")
    tail = follow(log)
    tail.read()
    written = [b"0"]
    for number in range(1, 11):
        tail.find_files()
        rotate(log, 3)
        append(log, b"%d\n" % number)
        written.append(b"%d" % number)
    assert texts(read_all(tail)) == written


def test_a_file_with_two_newer_ones_is_not_waited_for(log: Path) -> None:
    log.write_bytes(b"0\n")
    tail = Tail(log, None, line_bytes_max=100, quiet_s=1_000_000)
    tail.read()
    for number in range(1, 6):
        rotate(log, 10)
        append(log, b"%d\n" % number)
    items = [item for _ in range(20) for item in tail.read()]
    assert texts(items) == [b"0", b"1", b"2", b"3", b"4"]


def test_what_cannot_be_held_and_is_deleted_is_reported_with_its_bytes(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(family, "HELD_MAX", 2)
    log.write_bytes(b"0\n")
    tail = follow(log)
    tail.read()
    for number in range(1, 6):
        rotate(log, 2)
        append(log, b"%d\n" % number * 10)
        tail.find_files()
    items = read_all(tail)
    lost = lost_bytes(items)
    assert None not in lost
    assert len(b"\n".join(line_texts(items))) + 1 + sum(filter(None, lost)) == 2 + 5 * 20


def test_more_rotations_between_two_looks_than_are_kept_are_a_loss_of_unknown_size(log: Path) -> None:
    log.write_bytes(b"0\n")
    tail = follow(log)
    assert texts(read_all(tail)) == [b"0"]
    for number in range(1, 6):
        rotate(log, 2)
        append(log, b"%d\n" % number)
    items = read_all(tail)
    assert lost_bytes(items) == [None]
    assert line_texts(items) == [b"3", b"4", b"5"]


def test_a_file_seen_and_deleted_while_stopped_is_reported_with_its_bytes(log: Path) -> None:
    log.write_bytes(b"0\n1\n")
    tail = follow(log)
    tail.read()
    rotate(log, 9)
    append(log, b"22\n")
    tail.find_files()
    rotate(log, 9)
    append(log, b"333\n")
    (first, *_) = tail.read()
    assert isinstance(first, Line)
    tail.close()
    log.with_name("app.log.1").unlink()
    items = read_all(follow(log, from_json(to_json(first.after))))
    assert lost_bytes(items) == [3]
    assert line_texts(items) == [b"1", b"333"]


@pytest.mark.parametrize(
    "name", ["app-2026-11-28T10-00-00.000.log", "app_20261128_1000.log", "app.log-20261128", "app.20261128.log"]
)
def test_the_rest_of_a_file_rotated_to_any_name_while_stopped_is_read(log: Path, name: str) -> None:
    log.write_bytes(b"1\n")
    state = saved(read_all(follow(log)))
    append(log, b"2\n")
    log.rename(log.with_name(name))
    log.write_bytes(b"3\n")
    assert texts(read_all(follow(log, state))) == [b"2", b"3"]


def test_a_name_that_has_nothing_of_the_old_one_is_found_by_its_inode(log: Path) -> None:
    log.write_bytes(b"1\n")
    state = saved(read_all(follow(log)))
    append(log, b"2\n")
    log.rename(log.with_name("yesterday"))
    log.write_bytes(b"3\n")
    assert texts(read_all(follow(log, state))) == [b"2", b"3"]


def test_rotated_files_in_another_directory_are_found_by_the_pattern(log: Path) -> None:
    old = log.with_name("old")
    old.mkdir()

    def tail(state: FamilyState | None) -> Tail:
        return Tail(log, state, line_bytes_max=100, quiet_s=2, clock=count().__next__, rotated=str(old / "*"))

    log.write_bytes(b"1\n")
    state = saved(read_all(tail(None)))
    append(log, b"2\n")
    log.rename(old / "first")
    log.write_bytes(b"3\n")
    log.rename(old / "second")
    os.utime(old / "first", (1, 1))
    log.write_bytes(b"4\n")
    assert texts(read_all(tail(state))) == [b"2", b"3", b"4"]


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz", ".zst"])
def test_what_was_rotated_and_compressed_while_stopped_is_read(log: Path, ending: str) -> None:
    log.write_bytes(b"1\n")
    state = saved(read_all(follow(log)))
    append(log, b"2\n")
    rotate(log, 9)
    append(log, b"3\n")
    compress(log.with_name("app.log.1"), ending)
    log.with_name(f"app.log.1{ending}").rename(log.with_name(f"app.log.2{ending}"))
    log.rename(log.with_name("app.log.1"))
    log.write_bytes(b"4\n")
    again = read_all(follow(log, state))
    assert texts(again) == [b"2", b"3", b"4"]
    assert read_all(follow(log, saved(again))) == []


def test_what_was_compressed_in_a_format_that_is_not_read_is_reported(log: Path) -> None:
    log.write_bytes(b"1\n")
    state = saved(read_all(follow(log)))
    append(log, b"2\n")
    rotate(log, 9)
    append(log, b"3\n")
    compress(log.with_name("app.log.1"), UNREADABLE)
    items = read_all(follow(log, state))
    assert (line_texts(items), lost_bytes(items)) == ([b"3"], [None])


@pytest.mark.parametrize("ending", [".gz", ".zst", UNREADABLE])
def test_compression_of_what_was_read_is_neither_a_loss_nor_read_again(log: Path, ending: str) -> None:
    log.write_bytes(b"1\n")
    tail = follow(log)
    items = read_all(tail)
    rotate(log, 9)
    append(log, b"2\n")
    items += read_all(tail)
    compress(log.with_name("app.log.1"), ending)
    append(log, b"3\n")
    items += read_all(tail)
    assert texts(items) == [b"1", b"2", b"3"]
    assert read_all(follow(log, saved(items))) == []


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_a_compressed_file_that_is_cut_off_is_read_as_far_as_it_goes_and_reported(log: Path, ending: str) -> None:
    log.write_bytes(b"1\n")
    state = saved(read_all(follow(log)))
    append(log, b"".join(b"%d\n" % number for number in range(200_000)))
    rotate(log, 9)
    append(log, b"end\n")
    compress(log.with_name("app.log.1"), ending)
    whole = log.with_name(f"app.log.1{ending}")
    os.truncate(whole, whole.stat().st_size // 2)
    items = read_all(follow(log, state))
    assert line_texts(items)[0] == b"0"
    assert line_texts(items)[-1] == b"end"
    assert lost_bytes(items) == [None]


def test_a_copy_beside_the_file_is_not_read_a_second_time(log: Path) -> None:
    log.write_bytes(b"1\n2\n")
    tail = follow(log)
    items = read_all(tail)
    shutil.copy(log, log.with_name("app.log.bak"))
    append(log, b"3\n")
    items += read_all(tail)
    assert texts(items) == [b"1", b"2", b"3"]


def test_lines_that_come_late_to_a_finished_file_are_read(log: Path) -> None:
    log.write_bytes(b"1\n")
    tail = follow(log)
    items = read_all(tail)
    rotate(log, 9)
    append(log, b"2\n")
    items += read_all(tail)
    append(log.with_name("app.log.1"), b"late\n")
    tail._family._whole_look_s = 0.0  # as after WHOLE_LOOK_S
    items += read_all(tail)
    assert texts(items) == [b"1", b"2", b"late"]


def test_a_state_of_an_earlier_version_is_taken_over(log: Path) -> None:
    """Rotated files older than its place were read by that version; those newer were not."""
    log.with_name("app.log.2").write_bytes(b"read before\n")
    os.utime(log.with_name("app.log.2"), (1, 1))
    log.write_bytes(b"1\n")
    place = to_json(saved(read_all(follow(log))))["place"]
    rotate(log, 9)
    append(log, b"2\n")
    assert texts(read_all(follow(log, from_json({"place": place})))) == [b"2"]


def test_files_with_the_same_beginning_are_told_apart_by_their_inodes(log: Path) -> None:
    header = b"#" * 300 + b"\n"
    log.write_bytes(header + b"1\n")
    tail = Tail(log, None, line_bytes_max=1_000, quiet_s=1, clock=count().__next__)
    items = read_all(tail)
    for number in (2, 3):
        rotate(log, 9)
        append(log, header + b"%d\n" % number)
    items += read_all(tail)
    assert [text for text in texts(items) if len(text) < 10] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("seen", [b"", b"1", b"1\n", b"0\n1"])
def test_copies_of_two_truncations_between_two_looks_come_in_the_order_of_writing(log: Path, seen: bytes) -> None:
    log.write_bytes(seen)
    tail = follow(log)
    tail.read()
    tail.read()
    append(log, b"1+\n")
    copy_and_truncate(log)
    append(log, b"2\n")
    copy_and_truncate(log)
    append(log, b"3\n")
    read = [text for item in read_all(tail) for text in line_texts([item])]
    assert read[-3:] == [*(seen + b"1+\n").splitlines()[-1:], b"2", b"3"]


def test_truncations_while_an_older_file_is_read_come_in_the_order_of_writing(log: Path) -> None:
    log.write_bytes(b"0\n" * 40_000)
    tail = follow(log)
    tail.read()
    assert texts(tail.read())[-1] == b"0"
    rotate(log, 9)
    append(log, b"1\n")
    tail.find_files()
    for number in (2, 3, 4):
        copy_and_truncate(log)
        append(log, b"%d\n" % number)
    assert list(dict.fromkeys(texts(read_all(tail)))) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_file_that_was_renamed_after_copies_of_it_comes_after_the_copies(log: Path) -> None:
    log.touch()
    tail = follow(log)
    tail.read()
    for number in (1, 2):
        append(log, b"%d\n" % number)
        copy_and_truncate(log)
    append(log, b"3\n")
    rotate(log, 9, create=False)
    assert texts(read_all(tail)) == [b"1", b"2", b"3"]
    log.write_bytes(b"4\n")
    assert texts(read_all(tail)) == [b"4"]


def test_a_copy_and_a_renaming_between_two_looks_are_no_loss(log: Path) -> None:
    log.write_bytes(b"1")
    tail = follow(log)
    tail.read()
    copy_and_truncate(log)
    rotate(log, 9, create=False)
    log.write_bytes(b"2\n")
    assert texts(read_all(tail)) == [b"1", b"2"]


@pytest.mark.parametrize("grew", [False, True])
def test_a_file_that_was_rotated_and_compressed_before_it_could_be_opened_is_no_loss(log: Path, grew: bool) -> None:
    log.write_bytes(b"1\n")
    tail = follow(log)
    assert texts(read_all(tail)) == [b"1"]
    rotate(log, 9)
    append(log, b"2\n")
    with pytest.MonkeyPatch.context() as patch:  # the file is renamed between the scan and the opening
        patch.setattr(family, "note_head_of", lambda _file: None)
        patch.setattr(family.Family, "_open", lambda _family, _file: None)
        tail.find_files()
    if grew:
        append(log, b"3\n")
    rotate(log, 9)
    compress(log.with_name("app.log.1"))
    append(log, b"4\n")
    items = read_all(tail)
    assert lost_bytes(items) == []
    assert line_texts(items) == [b"2", *([b"3"] if grew else []), b"4"]


def test_a_saved_file_of_which_nothing_was_noted_is_found_compressed(log: Path) -> None:
    log.write_bytes(b"1\n")
    tail = follow(log)
    items = read_all(tail)
    rotate(log, 9)
    append(log, b"2\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(family, "note_head_of", lambda _file: None)
        patch.setattr(family.Family, "_open", lambda _family, _file: None)
        items += tail.read()
    assert tail.state is not None
    state = from_json(to_json(tail.state))
    rotate(log, 9)
    compress(log.with_name("app.log.1"))
    append(log, b"4\n")
    items = read_all(follow(log, state))
    assert lost_bytes(items) == []
    assert line_texts(items) == [b"2", b"4"]


def test_a_file_that_is_gone_and_files_that_came_after_it_are_two_losses(log: Path) -> None:
    """With one id, consumers of the ledger would count the known loss and pass over the unknown one."""
    log.write_bytes(b"1\n")
    tail = follow(log)
    state = saved(read_all(tail))
    append(log, b"2\n")
    tail.find_files()
    for text in (b"3\n", b"4\n", b"5\n"):
        rotate(log, 2)
        log.write_bytes(text)
    lost = [item for item in tail.read() if isinstance(item, UnreadRest)]
    tail.close()  # killed before the file that is still open was read
    lost += [item for item in read_all(follow(log, state)) if isinstance(item, UnreadRest)]
    assert len(lost) == 2
    assert len({item.place for item in lost}) == 1
    settings = config(log.parent, f'[[files]]\npath = "{log}"\n').files[0]
    source = FileSource(settings, FakePublisher().as_publisher(), log.parent, Metrics())
    assert len({source._loss(item).id for item in lost}) == 2


def test_lines_too_long_of_two_files_with_one_inode_are_two_losses(log: Path) -> None:
    """A file system gives the inode of a file that is removed to the next one."""
    settings = config(log.parent, f'[[files]]\npath = "{log}"\n').files[0]
    source = FileSource(settings, FakePublisher().as_publisher(), log.parent, Metrics())
    ids = set()
    for text in (b"a" * 2_000, b"b" * 2_000):
        log.write_bytes(text + b"\n")  # the same inode, place and length
        tail = follow(log)
        for item in read_all(tail):
            assert isinstance(item, TooLong)
            ids.add(source._loss(item).id)
        tail.close()
    assert len(ids) == 2
