"""Partition tables of any content.

Invariants: no table, however damaged, raises or is read past its bounds; a table that sfdisk's format describes gives
its partitions' first bytes in order.
"""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from drupelet.errors import ConfigurationError
from hardware.flash.image.contents import layout_of
from hardware.flash.image.images import Disk, identify
from hardware.flash.image.tables import FAT_TYPES, GPT_ENTRIES_MAX, Partition, fat_label, partitions

MARK = b"\x55\xaa"


def mbr(entries: list[tuple[int, int, int]]) -> bytes:
    packed = b"".join(struct.pack("<4xB3xII", *entry) for entry in entries)
    return (bytes(446) + packed.ljust(64, b"\0")) + MARK


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 255), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)), max_size=4),
    st.binary(),
)
def test_any_table_is_read(entries: list[tuple[int, int, int]], rest: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "image"
        path.write_bytes(mbr(entries) + rest)
        assert identify(Disk(path)).kind is None
        expected = [
            Partition(first * 512, (first + sectors) * 512, kind in FAT_TYPES)
            for kind, first, sectors in entries
            if kind and first and sectors
        ]
        if all(kind != 0xEE for kind, _, _ in entries):
            assert partitions(Disk(path).read) == expected


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.binary(max_size=2000))
def test_any_gpt_is_read(first: int, number: int, size: int, entries: bytes) -> None:
    header = (b"EFI PART" + bytes(64) + struct.pack("<QII", first, number, size)).ljust(512, b"\0")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "image"
        path.write_bytes(mbr([(0xEE, 1, 2**32 - 1)]) + header + entries)
        assert len(partitions(Disk(path).read)) <= GPT_ENTRIES_MAX
        assert identify(Disk(path)).kind is None


@given(st.binary(max_size=2000) | st.binary(max_size=510).map(lambda start: start.ljust(510, b"\0") + MARK))
def test_any_head_is_a_layout_or_one_sentence(head: bytes) -> None:
    try:
        found = layout_of("x", head)
    except ConfigurationError as error:
        said = str(error)
    else:
        said = ""
        assert found.partitions
    assert not said or said.startswith("x is no image of a card, it is ")


@given(st.binary(min_size=600, max_size=600), st.integers(0, 600))
def test_a_held_back_head_reads_like_the_file(content: bytes, held_back: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "image"
        path.write_bytes(bytes(held_back) + content[held_back:])
        disk = Disk(path, content[:held_back])
        assert disk.read(0, 600) == content
        assert all(disk.read(start, 40) == content[start : start + 40] for start in range(0, 600, 37))
        assert fat_label(disk.read, 400) is None
