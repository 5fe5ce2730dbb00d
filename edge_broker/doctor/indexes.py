"""Whether index files speak of the batches that lie in the log.

| file | what must hold |
|---|---|
| .index | each entry names the position of a batch and its last offset |
| .timeindex | each entry is a greatest timestamp up to then, and the last offset of the batch that brought it |

Contains: pure comparison, batch by batch. Does not contain: files. Source: FORMATS.md.
"""

from __future__ import annotations

from struct import Struct

from edge_broker.protocol.record_batch import BatchHeader
from edge_broker.storage.segment.segment_index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES

_OFFSET_ENTRY = Struct(">II")
_TIME_ENTRY = Struct(">qI")


class Entries:
    """The entries of an index file, compared as the batches come; `wrong` is the byte of the first bad one, or -1."""

    def __init__(self, data: bytes, entry: Struct, base_offset: int) -> None:
        whole = len(data) // entry.size * entry.size
        self.wrong = -1 if whole == len(data) else whole
        self._entries: list[tuple[int, int]] = list(entry.iter_unpack(data[:whole]))
        self._size = entry.size
        self._at = 0
        self._base = base_offset

    def _next(self) -> tuple[int, int] | None:
        return self._entries[self._at] if self._at < len(self._entries) else None

    def _take(self, *, right: bool) -> None:
        if not right and self.wrong < 0:
            self.wrong = self._at * self._size
        self._at += 1

    def end(self) -> None:
        """No more batches come: entries that are left speak of none."""
        while self._next() is not None:
            self._take(right=False)


class OffsetEntries(Entries):
    """An .index file."""

    def __init__(self, data: bytes, base_offset: int) -> None:
        super().__init__(data, _OFFSET_ENTRY, base_offset)
        assert _OFFSET_ENTRY.size == OFFSET_ENTRY_BYTES

    def batch(self, position: int, header: BatchHeader) -> None:
        """The next batch of the log."""
        while (entry := self._next()) is not None and entry[1] <= position:
            self._take(right=entry == (header.last_offset - self._base, position))

    def corrupt_range(self, position: int, end_position: int) -> None:
        """Nothing can be said of entries for these bytes."""
        while (entry := self._next()) is not None and entry[1] < end_position:
            self._take(right=entry[1] >= position)


class TimeEntries(Entries):
    """A .timeindex file."""

    def __init__(self, data: bytes, base_offset: int) -> None:
        super().__init__(data, _TIME_ENTRY, base_offset)
        assert _TIME_ENTRY.size == TIME_ENTRY_BYTES
        self._greatest = -1

    def batch(self, header: BatchHeader) -> None:
        """The next batch of the log."""
        if header.max_timestamp <= self._greatest:
            return
        self._greatest = header.max_timestamp
        while (entry := self._next()) is not None and entry[0] <= self._greatest:
            self._take(right=entry == (self._greatest, header.last_offset - self._base))

    def corrupt_range(self, first_offset: int, end_offset: int) -> None:
        """Nothing can be said of entries for these offsets."""
        while (entry := self._next()) is not None and first_offset <= entry[1] + self._base < end_offset:
            self._greatest = max(self._greatest, entry[0])
            self._take(right=True)
