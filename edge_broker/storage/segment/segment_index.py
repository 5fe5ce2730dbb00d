"""Sparse indexes of a segment: offset to position and time to offset, in memory and in Kafka's file formats.

| file | entry | bytes |
|---|---|---|
| .index | relative last offset of a batch (uint32), position of that batch (uint32), big-endian | 8 |
| .timeindex | greatest timestamp so far (int64), relative offset where it was reached (uint32), big-endian | 12 |

Contains: pure arrays and bytes. Does not contain: files. Source: Kafka's OffsetIndex and TimeIndex.
An index is a hint: readers check the batch that lies at a position.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12
_TIME_ENTRY = struct.Struct(">qI")
_LOW = 0xFFFFFFFF
_SWAP = sys.byteorder == "little"


class TailIndex:
    """The index of what was appended since the segment was opened; 24 bytes for each entry."""

    __slots__ = ("_batches", "_lasts", "_time_offsets", "_times")

    def __init__(self) -> None:
        self._batches = array("Q")  # relative base offset in the upper half, position in the lower
        self._lasts = array("I")
        self._times = array("q")
        self._time_offsets = array("I")

    def add(self, base: int, last: int, position: int) -> None:
        """Note a batch by its relative base and last offset."""
        self._batches.append(base << 32 | position)
        self._lasts.append(last)

    def add_time(self, timestamp: int, offset: int) -> None:
        """Note the greatest timestamp so far and the relative offset that has it; ignored unless it has grown."""
        if not self._times or timestamp > self._times[-1]:
            self._times.append(timestamp)
            self._time_offsets.append(offset)

    def position_before(self, offset: int) -> int:
        """Position of the last noted batch that begins at or before a relative offset; -1 when all begin later."""
        at = bisect_right(self._batches, offset << 32 | _LOW)
        return self._batches[at - 1] & _LOW if at else -1

    def offset_before_time(self, timestamp: int) -> int:
        """Relative offset up to which all noted timestamps are smaller; -1 when none is."""
        at = bisect_left(self._times, timestamp)
        return self._time_offsets[at - 1] if at else -1

    def entries(self) -> array[int]:
        """Relative last offset in the upper half and position in the lower, of each noted batch."""
        return array("Q", [last << 32 | batch & _LOW for last, batch in zip(self._lasts, self._batches, strict=False)])

    def offset_entries(self) -> bytes:
        """The entries of the .index file."""
        return _offset_bytes(self.entries())

    def time_entries(self, after: int = -1) -> bytes:
        """The entries of the .timeindex file, without those not greater than `after`."""
        pairs = zip(self._times, self._time_offsets, strict=True)
        return b"".join(_TIME_ENTRY.pack(*pair) for pair in pairs if pair[0] > after)


def _offset_bytes(entries: array[int]) -> bytes:
    if _SWAP:
        entries.byteswap()
    return entries.tobytes()


def load_offsets(data: bytes, size: int) -> array[int] | None:
    """The entries of an .index file for a log of `size` bytes, later ones left out; None when it cannot be right."""
    if len(data) % OFFSET_ENTRY_BYTES:
        return None
    entries = array("Q")
    entries.frombytes(data)
    if _SWAP:
        entries.byteswap()
    while entries and entries[-1] & _LOW >= size:
        entries.pop()
    lost = len(entries) > 1 and entries[-1] == 0
    return None if lost else entries


def position_before(entries: array[int], offset: int) -> int:
    """Position of the last entry's batch that ends at or before a relative offset, or of the first batch."""
    at = bisect_right(entries, offset << 32 | _LOW)
    return entries[at - 1] & _LOW if at else 0


def trim_times(data: bytes, offset: int) -> bytes:
    """The entries of a .timeindex file below a relative offset; nothing when it cannot be right."""
    end = len(data)
    if end % TIME_ENTRY_BYTES:
        return b""
    while end and _TIME_ENTRY.unpack_from(data, end - TIME_ENTRY_BYTES)[1] >= offset:
        end -= TIME_ENTRY_BYTES
    return b"" if end and _TIME_ENTRY.unpack_from(data, end - TIME_ENTRY_BYTES)[0] <= 0 else data[:end]


def last_time(data: bytes) -> tuple[int, int] | None:
    """Timestamp and relative offset of the last entry of a .timeindex file; None when it cannot be right."""
    if not data or len(data) % TIME_ENTRY_BYTES:
        return None
    timestamp, offset = _TIME_ENTRY.unpack_from(data, len(data) - TIME_ENTRY_BYTES)
    return timestamp, offset


def offset_before_time(data: bytes, timestamp: int) -> int:
    """Relative offset up to which all timestamps of a .timeindex file are smaller; -1 when none is."""
    low, high = 0, len(data) // TIME_ENTRY_BYTES
    while low < high:
        middle = (low + high) // 2
        if _TIME_ENTRY.unpack_from(data, middle * TIME_ENTRY_BYTES)[0] < timestamp:
            low = middle + 1
        else:
            high = middle
    return int(_TIME_ENTRY.unpack_from(data, (low - 1) * TIME_ENTRY_BYTES)[1]) if low else -1
