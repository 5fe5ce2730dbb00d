"""One segment of a partition's log: Kafka's record batches verbatim in one file, found by a sparse index.

| bytes of a batch | field used here |
|---|---|
| 0–7 | base offset |
| 8–11 | length of what follows |
| 16 | magic, 2 |
| 23–26 | last offset delta |

Lives here: finding and walking batches. Must never come in: what is synced or shown (log.py), what to do about damage
(recovery.py). Source: Kafka protocol, Record Batch; Kafka's LogSegment.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from edge_broker.errors import ProtocolViolation, StorageFault
from edge_broker.protocol.crc import crc32c
from edge_broker.protocol.record_batch import BatchHeader, read_header
from edge_broker.storage.index import (
    TailIndex,
    last_time,
    load_offsets,
    offset_before_time,
    position_before,
    trim_times,
)
from edge_broker.storage.state_files import read_whole, replace

if TYPE_CHECKING:
    from array import array

    from edge_broker.storage.filesystem import Bytes, File, FileSystem

HEADER_BYTES = 61
CRC_FROM = 21
WINDOW_BYTES = 8192
CHUNK_BYTES = 1 << 20
OFFSETS_MAX = 0x7FFFFFFF
_FIELDS = struct.Struct(">qi4xb6xi")
_LENGTH_MIN = HEADER_BYTES - 12


class WouldBlockError(Exception):
    """The bytes are not in memory, and the caller must not wait for the disk."""


class BrokenBatchError(Exception):
    """No valid batch lies at `position`."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position
        self.reason = reason


class OpenFiles:
    """The open files and loaded indexes of all segments; the least recently used go when there are too many.

    The loop, the disk worker and the reader use it at once: each step is one call of a C method, which no other
    thread can split. A file is closed when its last user lets go of it.
    """

    def __init__(self, fs: FileSystem, files_max: int = 256, indexes_max: int = 32) -> None:
        self.fs = fs
        self._files: OrderedDict[Segment, File] = OrderedDict()
        self._indexes: OrderedDict[Segment, array[int]] = OrderedDict()
        self._files_max = files_max
        self._indexes_max = indexes_max

    def file(self, segment: Segment) -> File:
        """The open file of a segment."""
        file = self._files.pop(segment, None)
        if file is None:
            file = self.fs.open(segment.path)
        self.keep_file(segment, file)
        return file

    def keep_file(self, segment: Segment, file: File) -> None:
        """Take in a file that was just opened."""
        self._files[segment] = file
        if len(self._files) > self._files_max:
            self._files.popitem(last=False)

    def index(self, segment: Segment) -> array[int] | None:
        """The loaded index of a segment, if it is there."""
        index = self._indexes.pop(segment, None)
        if index is not None:
            self._indexes[segment] = index
        return index

    def keep_index(self, segment: Segment, index: array[int]) -> None:
        """Take in an index that was just loaded."""
        self._indexes[segment] = index
        if len(self._indexes) > self._indexes_max:
            self._indexes.popitem(last=False)

    def forget(self, segment: Segment) -> None:
        """Drop what is held of a segment."""
        self._files.pop(segment, None)
        self._indexes.pop(segment, None)

    def count(self) -> int:
        """Open files held here; files with unsynced bytes are held by their segments besides."""
        return len(self._files)


class Segment:
    """A segment file and what is known of it; `size` is the end of its last whole batch."""

    __slots__ = (
        "base_offset",
        "born_ms",
        "directory",
        "files",
        "index_interval_bytes",
        "indexed_from",
        "indexed_offset",
        "max_timestamp",
        "max_timestamp_offset",
        "path",
        "pinned",
        "size",
        "sync_failed",
        "tail",
    )

    def __init__(
        self, files: OpenFiles, directory: str, base_offset: int, size: int, index_interval_bytes: int = 4096
    ) -> None:
        self.files = files
        self.directory = directory
        self.base_offset = base_offset
        self.path = f"{directory}/{base_offset:020d}.log"
        self.size = size
        self.index_interval_bytes = index_interval_bytes
        self.tail: TailIndex | None = (
            None  # covers the bytes from `indexed_from` on; the index files cover those before
        )
        self.indexed_from = size
        self.indexed_offset = (
            base_offset + OFFSETS_MAX
        )  # entries of the index files from here on are not to be believed
        self.max_timestamp = -1
        self.max_timestamp_offset = -1  # -1: not known yet
        self.born_ms = -1
        self.pinned: File | None = (
            None  # held while bytes are unsynced: only this descriptor surely learns of their loss
        )
        self.sync_failed = False

    @property
    def file(self) -> File:
        """The open file."""
        return self.pinned or self.files.file(self)

    def name(self, suffix: str) -> str:
        """The name of a file beside the log, such as `index`."""
        return f"{self.base_offset:020d}.{suffix}"

    def open_tail(self, position: int = 0, offset: int = -1) -> None:
        """Make ready for appends: index in memory what comes after `position`, where the batch of `offset` begins."""
        self.tail = TailIndex()
        self.indexed_from = position
        self.indexed_offset = self.base_offset if offset < 0 else offset

    def note(self, base_offset: int, last_offset: int, position: int, interval_end: int) -> int:
        """Index a batch when the interval is over; the position at which the next is due."""
        if position < interval_end or self.tail is None:
            return interval_end
        self.tail.add(base_offset - self.base_offset, last_offset - self.base_offset, position)
        if self.max_timestamp >= 0:
            self.tail.add_time(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        return position + self.index_interval_bytes

    def note_time(self, timestamp: int, offset: int) -> None:
        """Note a batch's greatest timestamp and last offset."""
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.max_timestamp_offset = offset

    def datasync(self) -> None:
        """Sync the file; after one failure never again, as what it covered is unknown. OSError, StorageFault."""
        if self.sync_failed:
            raise StorageFault(
                self.path, self.size, "an earlier sync failed, so this one would prove nothing; restart the broker"
            )
        try:
            self.file.datasync()
        except OSError:
            self.sync_failed = True
            raise

    def read(self, size: int, position: int, *, blocking: bool) -> Bytes:
        """Bytes of the file, fewer than `size` only when not blocking; WouldBlockError, StorageFault."""
        try:
            data = self.file.read(size, position) if blocking else self.file.read_cached(size, position)
        except OSError as error:
            raise StorageFault(self.path, position, f"cannot be read: {error.strerror}") from error
        if data is None:
            raise WouldBlockError
        if len(data) < size:
            if not blocking:
                raise WouldBlockError
            raise StorageFault(
                self.path, position + len(data), f"the file ends where {size - len(data)} more bytes were synced"
            )
        return data

    def locate(self, offset: int, limit: int, *, blocking: bool) -> int:
        """Position of the batch that holds an offset, or of the next one; `limit` when there is none before it."""
        position = self._position_before(offset, blocking=blocking)
        try:
            return self._walk_to(offset, position, limit, blocking=blocking)
        except BrokenBatchError as broken:
            if not blocking:
                raise WouldBlockError from None
            if position > 0:  # a damaged index can point anywhere; the log itself decides
                return self._locate_without_index(offset, limit)
            raise StorageFault(self.path, broken.position, broken.reason) from None

    def _locate_without_index(self, offset: int, limit: int) -> int:
        self.rebuild_index()
        try:
            return self._walk_to(offset, self._position_before(offset, blocking=True), limit, blocking=True)
        except BrokenBatchError as broken:
            raise StorageFault(self.path, broken.position, broken.reason) from None

    def _position_before(self, offset: int, *, blocking: bool) -> int:
        relative = offset - self.base_offset
        tail = self.tail  # read once: a roll in the worker takes it away
        if tail is not None:
            position = tail.position_before(relative)
            if position >= 0:
                return position
        if self.indexed_from <= self.index_interval_bytes:
            return 0
        return position_before(self._index(blocking=blocking), relative)

    def _walk_to(self, offset: int, position: int, limit: int, *, blocking: bool) -> int:
        expected = self.base_offset
        while position < limit:
            window = self.read(min(WINDOW_BYTES, limit - position), position, blocking=blocking)
            at, end = 0, len(window) - HEADER_BYTES
            while at <= end:
                base, length, magic, delta = _FIELDS.unpack_from(window, at)
                if magic != 2 or length < _LENGTH_MIN or delta < 0 or base < expected:
                    raise BrokenBatchError(position + at, "no record batch begins here")
                if base + delta >= offset:
                    return position + at
                expected = base + delta + 1
                at += length + 12
            if at == 0:
                raise BrokenBatchError(position, "a record batch is cut short here")
            position += at
        return limit

    def _index(self, *, blocking: bool) -> array[int]:
        index = self.files.index(self)
        if index is not None:
            return index
        if not blocking:
            raise WouldBlockError
        try:
            loaded = load_offsets(
                read_whole(self.files.fs, f"{self.directory}/{self.name('index')}"), self.indexed_from
            )
        except (OSError, StorageFault):
            loaded = None
        if loaded is None or (not loaded and self.indexed_from > CHUNK_BYTES):
            return self.rebuild_index()
        self.files.keep_index(self, loaded)
        return loaded

    def rebuild_index(self) -> array[int]:
        """Make the index of the part that the files should cover from the log itself; kept. StorageFault. [worker]"""
        tail = TailIndex()
        due = 0
        try:
            for position, header in batches_in(self.file, 0, self.indexed_from):
                if position >= due:
                    tail.add(header.base_offset - self.base_offset, header.last_offset - self.base_offset, position)
                    due = position + self.index_interval_bytes
        except BrokenBatchError:
            due = -1  # what lies before the damage is indexed; whoever reads on reports the damage
        except OSError as error:
            raise StorageFault(self.path, 0, f"cannot be read: {error.strerror}") from error
        index = load_offsets(tail.offset_entries(), self.indexed_from)
        assert index is not None
        self.files.keep_index(self, index)
        return index

    def seal(self) -> None:
        """Write the index files for the whole segment; the caller syncs the directory. OSError. [worker]"""
        tail, fs = self.tail, self.files.fs
        if tail is None or self.indexed_from == self.size:
            return
        offsets, times = b"", b""
        if self.indexed_from > 0:
            index = self._index(blocking=True)
            offsets = encode_offsets(index)
            times = self._time_bytes()
        last = last_time(times)
        if self.max_timestamp >= 0:
            tail.add_time(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        files = (
            ("index", offsets + tail.offset_entries()),
            ("timeindex", times + tail.time_entries(last[0] if last else -1)),
        )
        for suffix, data in files:
            replace(fs, self.directory, self.name(suffix), data, sync_name=False)

    def _time_bytes(self) -> bytes:
        """The time index of the part that the files cover, made again from the log if its file is lost or torn."""
        try:
            data = trim_times(
                read_whole(self.files.fs, f"{self.directory}/{self.name('timeindex')}"),
                self.indexed_offset - self.base_offset,
            )
        except (OSError, StorageFault):
            data = b""
        return data if data else self._times_from_log()

    def _times_from_log(self) -> bytes:
        tail, greatest = TailIndex(), -1
        try:
            for _, header in batches_in(self.file, 0, self.indexed_from):
                if header.max_timestamp > greatest:
                    greatest = header.max_timestamp
                    tail.add_time(greatest, header.last_offset - self.base_offset)
        except BrokenBatchError:
            greatest = -1  # as with the offset index, whoever reads on reports the damage
        return tail.time_entries()

    def greatest_timestamp(self) -> tuple[int, int]:
        """(timestamp, last offset of its batch), -1 without; reads the time index the first time. [worker]"""
        if self.max_timestamp_offset < 0 and self.size > 0:
            try:
                found = last_time(self._time_bytes())
            except OSError as error:
                raise StorageFault(self.path, 0, f"cannot be read: {error.strerror}") from error
            self.max_timestamp, relative = found or (-1, 0)
            self.max_timestamp_offset = self.base_offset + relative
        return self.max_timestamp, self.max_timestamp_offset

    def position_for_time(self, timestamp: int, limit: int) -> int:
        """A position from which to look for the first batch at or after a time: all before it are earlier. [worker]"""
        tail = self.tail
        relative = tail.offset_before_time(timestamp) if tail is not None else -1
        if relative < 0 and self.indexed_from > 0:
            relative = offset_before_time(self._time_bytes(), timestamp)
        return self.locate(self.base_offset + relative, limit, blocking=True) if relative >= 0 else 0


def encode_offsets(index: array[int]) -> bytes:
    """The bytes of a loaded offset index."""
    return struct.pack(f">{len(index)}Q", *index)


def batches_in(
    file: File, position: int, end: int, verify_from: int | None = None
) -> Iterator[tuple[int, BatchHeader]]:
    """Walk the batches of a file; from `verify_from` on each CRC is checked. BrokenBatchError, OSError.

    Memory is bounded by 1 MiB, whatever a damaged length claims, except for a batch that lies whole in the file.
    """
    window: Bytes = b""
    start = position
    while position < end:
        if position + HEADER_BYTES > start + len(window):
            window, start = file.read(min(CHUNK_BYTES, end - position), position), position
        try:
            header = read_header(window, position - start)
        except (ProtocolViolation, IndexError, struct.error):
            raise BrokenBatchError(position, "no record batch begins here") from None
        if header.size < HEADER_BYTES or position + header.size > end:
            raise BrokenBatchError(position, f"a record batch of {header.size} bytes reaches past the end")
        if verify_from is not None and position >= verify_from:
            at = position - start
            if at + header.size > len(window):
                window, start, at = file.read(max(header.size, min(CHUNK_BYTES, end - position)), position), position, 0
            if crc32c(memoryview(window)[at + CRC_FROM : at + header.size]) != header.crc:
                raise BrokenBatchError(position, "the CRC of a record batch does not match its bytes")
        yield position, header
        position += header.size
