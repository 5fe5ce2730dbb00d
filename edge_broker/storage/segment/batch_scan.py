"""Batches between two positions of a segment file: walked by their headers, checked by their CRCs.

| bytes of a batch | field used here |
|---|---|
| 0–7 | base offset |
| 8–11 | length of what follows |
| 16 | magic, 2 |
| 17–20 | CRC-32C of bytes 21 to the end |
| 23–26 | last offset delta |

Contains: what a range of bytes holds, over corrupt ranges. Does not contain: which file, indexes (segment.py), what
to do about damage (loss/quarantine.py, recovery/open_partition.py). Source: Kafka protocol, Record Batch.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from edge_broker.errors import ProtocolViolation
from edge_broker.protocol.crc import crc32c
from edge_broker.protocol.record_batch import MAGIC, BatchHeader, read_header

if TYPE_CHECKING:
    from edge_broker.storage.files.filesystem import Bytes, File

HEADER_BYTES = 61
LENGTH_MIN = HEADER_BYTES - 12
MAGIC_BYTE = 16
CRC_FROM = 21
CHUNK_BYTES = 1 << 20
PAGE_BYTES = 4096
_CHECKED_FIELDS = struct.Struct(">qi4xbI2xi")


class Bounds(NamedTuple):
    """The known bounds of a segment, apart from its bytes.

    Its batches lie before `position` and hold offsets below `end_offset`, none missing when `dense`.
    """

    position: int
    end_offset: int
    dense: bool


class CorruptRange(NamedTuple):
    """Offsets [first_offset, end_offset) that are lost, and the bytes [position, end_position) that readers skip.

    A range may have no bytes (a file that is cut short or missing) or no offsets (bytes that never held a batch).
    `owed` 1: another replica may have it, and the ledger has not (replica/missing_ranges.py).
    """

    first_offset: int
    end_offset: int
    position: int
    end_position: int
    owed: int = 0

    @property
    def is_empty(self) -> bool:
        """Nothing is lost here at all."""
        return self.first_offset == self.end_offset and self.position == self.end_position


class BrokenBatchError(Exception):
    """No valid batch lies at `position`."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position
        self.reason = reason


def batches_in(
    file: File,
    position: int,
    end: int,
    verify_from: int | None = None,
    *,
    corrupt_ranges: Sequence[CorruptRange] = (),
    offset: int = -1,
    dense: bool = False,
) -> Iterator[tuple[int, BatchHeader]]:
    """Walk the batches of a file, over its corrupt ranges; from `verify_from` on each CRC is checked.

    `offset` is the one that is due at `position` (-1: not known); `dense`: none may be missing between batches.
    BrokenBatchError, OSError. Memory is bounded by 1 MiB, whatever a damaged length claims, except for a batch that
    lies whole in the file.
    """
    for corrupt_range in corrupt_ranges:
        if corrupt_range.position >= end:
            break
        if corrupt_range.position >= position:
            yield from _batches(file, position, corrupt_range.position, verify_from, offset, dense=dense)
        if corrupt_range.end_position >= position:
            position, offset = corrupt_range.end_position, corrupt_range.end_offset
    yield from _batches(file, position, end, verify_from, offset, dense=dense)


def _batches(
    file: File, position: int, end: int, verify_from: int | None, offset: int, *, dense: bool
) -> Iterator[tuple[int, BatchHeader]]:
    window: Bytes = b""
    start = position
    while position < end:
        if position + HEADER_BYTES > start + len(window):
            window, start = read_sound(file, min(CHUNK_BYTES, end - position), position), position
        try:
            header = read_header(window, position - start)
        except (ProtocolViolation, IndexError, struct.error):
            raise BrokenBatchError(position, "no record batch begins here") from None
        if header.size < HEADER_BYTES or position + header.size > end:
            raise BrokenBatchError(position, f"a record batch of {header.size} bytes reaches past the end")
        if header.base_offset < offset or (dense and offset >= 0 and header.base_offset != offset):
            raise BrokenBatchError(position, f"a record batch has offset {header.base_offset} where {offset} was due")
        if verify_from is not None and position >= verify_from:
            at = position - start
            if at + header.size > len(window):
                size = max(header.size, min(CHUNK_BYTES, end - position))
                window, start, at = read_sound(file, size, position), position, 0
            if crc32c(memoryview(window)[at + CRC_FROM : at + header.size]) != header.crc:
                raise BrokenBatchError(position, "the CRC of a record batch does not match its bytes")
        yield position, header
        position += header.size
        offset = header.next_offset


def half_written(file: File, position: int, end: int, offset: int) -> bool:
    """Whether the batch of `offset` begins at `position` and the file ends amid it: a kill within write(2) leaves that.

    The kernel copies page by page, and a process that is killed goes no further. OSError.
    """
    data = bytes(read_sound(file, min(HEADER_BYTES, end - position), position))
    if data[:8] != offset.to_bytes(8, "big")[: len(data)]:
        return False
    if len(data) <= MAGIC_BYTE:
        return len(data) == end - position
    length = int.from_bytes(data[8:12], "big", signed=True)
    return data[MAGIC_BYTE] == MAGIC and length >= LENGTH_MIN and position + 12 + length > end


def sound_bytes(data: Bytes, offset: int, *, dense: bool) -> tuple[int, int, str]:
    """Return the bytes of the valid whole batches at the front, the offset after them, and the problem
    there, if one exists.

    `offset` is the first one due; `dense`: none may be missing. A last batch that the data cuts off is not judged.
    """
    view, position, size = memoryview(data), 0, len(data)
    while size - position >= HEADER_BYTES:
        base, length, magic, crc, delta = _CHECKED_FIELDS.unpack_from(view, position)
        end = position + length + 12
        if magic != 2 or length < LENGTH_MIN or delta < 0:
            return position, offset, "no record batch begins here"
        if base < offset or (dense and base != offset):
            return position, offset, f"a record batch has offset {base} where {offset} was due"
        if end > size:
            break
        if crc32c(view[position + CRC_FROM : end]) != crc:
            return position, offset, "the CRC of a record batch does not match its bytes"
        position, offset = end, base + delta + 1
    return position, offset, ""


def read_sound(file: File, size: int, position: int) -> Bytes:
    """Return the bytes of a range before the first page that the disk gives up on. OSError for any other reason."""
    try:
        return file.read(size, position)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
    parts: list[Bytes] = []
    while size > 0:
        step = min(size, PAGE_BYTES - position % PAGE_BYTES)
        try:
            part = file.read(step, position)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            break
        if not part:
            break
        parts.append(part)
        position, size = position + len(part), size - len(part)
    return b"".join(parts)
