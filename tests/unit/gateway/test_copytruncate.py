"""A program that writes while copytruncate copies its file: the copy ends before what was read."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from gateway.sources.file_reading.places import Item, from_json, to_json
from gateway.sources.files.tail import Tail
from tests.support.gateway.followed_file import append, follow, texts
from tests.support.gateway.followed_file import read_all as read_until_quiet
from tests.support.gateway.rotated_file import line_texts, lost_bytes

LINES = [b"line %d" % number for number in range(100)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "app.log"


def read_all(tail: Tail) -> list[Item]:
    """Read until nothing comes, and until the directory was scanned often enough for a verdict on each name."""
    items: list[Item] = []
    for _ in range(4):
        tail._family._signature = None
        items += read_until_quiet(tail)
    return items


def begin_copy(log: Path, share: float = 1.0) -> Path:
    """Copy the first part of the file, as cp(1) has at a moment."""
    copy, content = log.with_name("app.log.1"), log.read_bytes()
    copy.write_bytes(content[: int(len(content) * share)])
    return copy


def followed(log: Path) -> tuple[Tail, list[Item]]:
    log.write_bytes(b"".join(line + b"\n" for line in LINES))
    tail = follow(log)
    return tail, read_all(tail)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_lines_that_were_read_before_the_truncation_are_not_read_again_in_the_copy(log: Path, share: float) -> None:
    tail, items = followed(log)
    whole = log.read_bytes()
    copy = begin_copy(log, share)
    items += read_all(tail)
    append(log, b"late\n")
    items += read_all(tail)
    copy.write_bytes(whole)
    items += tail.read()
    os.truncate(log, 0)
    append(log, b"new\n")
    items += read_all(tail)
    assert line_texts(items) == [*LINES, b"late", b"new"]
    assert lost_bytes(items) == [None]  # the program may have written more before the truncation


def test_the_rest_of_the_copy_is_read_where_more_was_seen_than_it_has(log: Path) -> None:
    tail, items = followed(log)
    append(log, b"unread\n")
    copy = begin_copy(log)
    tail.find_files()
    append(log, b"late\n")
    tail.find_files()
    os.truncate(log, 0)
    append(log, b"new\n")
    items += read_all(tail)
    assert line_texts(items) == [*LINES, b"unread", b"new"]
    assert lost_bytes(items) == [None]
    assert copy.exists()


def test_the_short_copy_is_not_read_when_it_is_compressed_or_after_a_restart(log: Path) -> None:
    tail, items = followed(log)
    copy = begin_copy(log)
    items += read_all(tail)
    append(log, b"late\n")
    items += read_all(tail)
    os.truncate(log, 0)
    append(log, b"new\n")
    items += read_all(tail)
    assert tail.state is not None
    state = from_json(to_json(tail.state))
    compressed = copy.with_name("app.log.1.gz")
    compressed.write_bytes(gzip.compress(copy.read_bytes()))
    os.utime(compressed, ns=(0, copy.stat().st_mtime_ns))
    copy.unlink()
    append(log, b"more\n")
    assert texts(read_all(tail)) == [b"more"]
    assert texts(read_all(follow(log, state))) == [b"more"]
    assert line_texts(items) == [*LINES, b"late", b"new"]
