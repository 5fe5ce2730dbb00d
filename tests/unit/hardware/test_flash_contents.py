"""What an image's first megabyte tells: partitions, where they end, whether a Pi could start from one of them.

Invariant: a table of either kind gives the length that the image must have; what is no table is never taken for one.
"""

from __future__ import annotations

import struct
import uuid

import pytest

from drupelet.errors import ConfigurationError
from hardware.flash.image.contents import HEAD_BYTES, layout_of
from hardware.flash.image.tables import Partition
from tests.support.card_images import MIB, boot_sector

FAT, LINUX = "ebd0a0a2-b9e5-4433-87c0-68b6b72699c7", "0fc63daf-8483-4772-8e79-3d69d8477de4"


def gpt(*entries: tuple[str, int, int]) -> bytes:
    table = b"".join(
        uuid.UUID(kind).bytes_le + bytes(16) + struct.pack("<QQ", first, last) + bytes(80)
        for kind, first, last in entries
    )
    header = (b"EFI PART" + bytes(64) + struct.pack("<QII", 2, len(entries), 128)).ljust(512, b"\0")
    return boot_sector(9 * MIB).replace(b"\x83", b"\xee") + header + table + bytes(MIB)


def fat(label: bytes) -> bytes:
    return bytes(71) + label + b"FAT32   " + bytes(420) + b"\x55\xaa" + bytes(MIB)


def test_a_gpt_says_how_long_the_image_is_and_whether_it_starts() -> None:
    layout = layout_of("x", gpt((FAT, 2048, 4095), (LINUX, 4096, 8191)))
    assert layout.partitions == (Partition(MIB, 2 * MIB, True), Partition(2 * MIB, 4 * MIB, False))
    assert (layout.end, layout.bootable) == (4 * MIB, True)
    assert not layout_of("x", gpt((LINUX, 2048, 4095))).bootable
    with pytest.raises(ConfigurationError, match="a disk whose GPT is damaged"):
        layout_of("x", gpt())


def test_one_fat_file_system_is_a_card_and_its_length_is_not_known() -> None:
    layout = layout_of("x", fat(b"bootfs     "))
    assert (layout.end, layout.bootable) == (0, True)


def test_a_boot_sector_whose_code_lies_where_a_table_would_is_no_table() -> None:
    sector = bytearray(boot_sector(9 * MIB))
    sector[446] = 0x41
    with pytest.raises(ConfigurationError, match="something without a partition table"):
        layout_of("x", bytes(sector) + bytes(MIB))


def test_a_text_is_one_whatever_character_the_head_ends_in() -> None:
    for text in ("ö" * HEAD_BYTES, "x" + "ö" * HEAD_BYTES, "€" * HEAD_BYTES, "\t1\r\n" * 99):
        with pytest.raises(ConfigurationError, match="it is text"):
            layout_of("x", text.encode()[:HEAD_BYTES])
