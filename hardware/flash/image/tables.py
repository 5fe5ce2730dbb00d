"""PURE: find partitions and file systems in bytes, by partition tables and signatures.

Does not contain: the content of file systems (`images`), the decision to write the image (`contents`).
Sources: UEFI specification 5.2 and 5.3 (MBR, GPT), Microsoft's FAT specification.

| structure | bytes | what |
|---|---|---|
| MBR | 446 + 16 n | entry n of 4: 00 or 80; at 4 type, 8 first sector, 12 sectors (u32 little-endian); 55 AA at 510 |
| GPT | 512 + 72, 80, 84 | first sector of the entries (u64), their number and size (u32); `EFI PART` at 512 |
| GPT entry | 0, 32, 40 | type, first sector, last sector |
| FAT | 54 or 82; 43 or 71 | `FAT` and the label, for FAT12 and FAT16 or for FAT32; 55 AA at 510 |
| ext | 1024 + 56 | 53 EF |
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

SECTOR_BYTES = 512
GPT_ENTRIES_MAX = 128
PROTECTIVE = 0xEE
FAT_TYPES = {0x01, 0x04, 0x06, 0x0B, 0x0C, 0x0E, 0xEF}
FAT_TYPE_IDS = {  # basic data (EBD0A0A2-…), EFI system (C12A7328-…); the first three parts are little-endian
    bytes.fromhex("a2a0d0eb e5b9 3344 87c0 68b6b72699c7"),
    bytes.fromhex("28732ac1 1ff8 d211 ba4b 00a0c93ec93b"),
}

Read: TypeAlias = Callable[[int, int], bytes]
"""Gives bytes from a position on: short at the end, empty past it."""


@dataclass(frozen=True)
class Partition:
    """A partition's first byte, the one after its last, and whether its type is one that a FAT file system has."""

    start: int
    end: int
    fat_type: bool


def partitions(read: Read) -> list[Partition]:
    """List the partitions in the table's order; empty without a table."""
    entries = mbr_entries(read(0, SECTOR_BYTES))
    if any(kind == PROTECTIVE for _, kind, _, _ in entries):
        return gpt_partitions(read)
    used = [entry[1:] for entry in entries if all(entry[1:])]
    return [
        Partition(first * SECTOR_BYTES, (first + sectors) * SECTOR_BYTES, kind in FAT_TYPES)
        for kind, first, sectors in used
    ]


def mbr_entries(sector: bytes) -> list[tuple[int, int, int, int]]:
    """Give status, type, first sector and sectors of each entry; none if it is no such sector."""
    if len(sector) < SECTOR_BYTES or sector[510:] != b"\x55\xaa":
        return []
    return [struct.unpack_from("<B3xB3xII", sector, 446 + 16 * number) for number in range(4)]


def gpt_partitions(read: Read) -> list[Partition]:
    """List a GPT's partitions."""
    header = read(SECTOR_BYTES, SECTOR_BYTES)
    if len(header) < SECTOR_BYTES or not header.startswith(b"EFI PART"):
        return []
    first, number, size = struct.unpack_from("<QII", header, 72)
    if size < 56 or size > SECTOR_BYTES:
        return []
    table = read(first * SECTOR_BYTES, min(number, GPT_ENTRIES_MAX) * size)
    entries = [table[at : at + size] for at in range(0, len(table) - 55, size)]
    return [gpt_partition(entry) for entry in entries if any(entry[:16])]


def gpt_partition(entry: bytes) -> Partition:
    """Read one entry."""
    first, last = struct.unpack_from("<QQ", entry, 32)
    return Partition(first * SECTOR_BYTES, (last + 1) * SECTOR_BYTES, entry[:16] in FAT_TYPE_IDS)


def fat_label(read: Read, start: int) -> str | None:
    """Read the label of a FAT file system without its padding; None if there is no FAT at that byte."""
    sector = read(start, SECTOR_BYTES)
    if len(sector) < SECTOR_BYTES or sector[510:] != b"\x55\xaa":
        return None
    for mark, label in ((82, 71), (54, 43)):
        if sector[mark : mark + 3] == b"FAT":
            return sector[label : label + 11].decode("ascii", "replace").rstrip(" \0")
    return None


def is_ext(read: Read, start: int) -> bool:
    """Return whether an ext2, 3 or 4 file system begins at that byte."""
    return read(start + 1024 + 56, 2) == b"\x53\xef"
