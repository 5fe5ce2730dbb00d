"""NULs that no program wrote: holes after copytruncate, and blocks that a power cut emptied.

Invariants: the line after them is read, and they are counted; NULs that belong to a line stay.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from gateway.sources.file_reading.places import TooLong
from tests.support.gateway.followed_file import append, follow, read_all, texts
from tests.support.gateway.rotated_file import line_texts, lost_bytes


def test_the_line_after_the_hole_that_copytruncate_leaves_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    with log.open("wb", buffering=0) as writer:  # no O_APPEND
        writer.write(b"1\n" * 4_000)
        tail = follow(log)
        assert len(texts(read_all(tail))) == 4_000
        shutil.copy(log, tmp_path / "app.log.1")
        os.truncate(log, 0)
        writer.write(b"after the hole\n")
    items = read_all(tail)
    assert (line_texts(items), lost_bytes(items)) == ([b"after the hole"], [])
    assert tail.nul_bytes == 8_000


def test_a_block_that_a_power_cut_emptied_is_skipped_and_few_nuls_are_not(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_bytes(b"1\n")
    tail = follow(log)
    append(log, b"\0" * 5_000 + b"2\n" + b"\0\0three\n")
    assert texts(read_all(tail)) == [b"1", b"2", b"\0\0three"]
    assert tail.nul_bytes == 5_000


def test_a_hole_larger_than_a_read_costs_no_memory(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    with log.open("wb") as writer:
        writer.seek(1 << 30)
        writer.write(b"far\n")
    tail = follow(log)
    assert texts(read_all(tail)) == [b"far"]
    assert tail.nul_bytes == 1 << 30


def test_a_few_nuls_before_a_line_that_is_too_long_are_its_own(tmp_path: Path) -> None:
    """As UTF-16 has one before each line but the first."""
    log = tmp_path / "app.log"
    log.write_bytes(b"first\n\0" + b"x" * 100_000 + b"\nlast\n")
    first, long, last = read_all(follow(log))
    assert isinstance(long, TooLong)
    assert (long.beginning[:3], long.beginning.count(b"\0"), long.bytes) == (b"\0xx", 1, 100_001)
    assert texts([first, last]) == [b"first", b"last"]
