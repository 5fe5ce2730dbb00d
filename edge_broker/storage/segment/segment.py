"""One segment of a partition's log: Kafka's record batches verbatim in one file, found by a sparse index.

| bytes of a batch | field used here |
|---|---|
| 0–7 | base offset |
| 8–11 | length of what follows |
| 16 | magic, 2 |
| 23–26 | last offset delta |

Contains: finding batches, a segment's files. Does not contain: what is synced or shown (partition_log.py), what
to do about damage (recovery/open_partition.py). Source: Kafka protocol, Record Batch; Kafka's LogSegment.
"""

from __future__ import annotations

import errno
import struct
from array import array
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from edge_broker.errors import StorageFault
from edge_broker.storage.files.atomic_files import OUT_OF_SPACE, fault_of, read_state, read_whole, replace
from edge_broker.storage.files.data_age import AGE_UNKNOWN
from edge_broker.storage.segment.batch_scan import (
    CHUNK_BYTES,
    HEADER_BYTES,
    LENGTH_MIN,
    BrokenBatchError,
    CorruptRange,
    batches_in,
)
from edge_broker.storage.segment.segment_index import (
    TailIndex,
    last_time,
    load_offsets,
    offset_before_time,
    position_before,
    trim_times,
)
from edge_broker.storage.segment.segment_summary import KIND, VERSION, Summary, Tally, encode_summary, summary_of
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.storage.files.data_age import Now
    from edge_broker.storage.files.filesystem import Bytes, File
    from edge_broker.storage.segment.open_file_cache import OpenFiles

WINDOW_BYTES = 8192
OFFSETS_MAX = 0x7FFFFFFF
_FIELDS = struct.Struct(">qi4xb6xi")
PutFile: TypeAlias = Callable[[str, bytes], None]
"""Replaces a file of a log's directory by name and content; its owner sees to the syncs."""


class WouldBlockError(Exception):
    """The bytes are not in memory, and the caller must not wait for the disk."""


class DamageFound(Exception):
    """At or before `position` a segment does not hold what was written."""

    def __init__(self, segment: Segment, position: int, reason: str) -> None:
        super().__init__(f"{segment.path} at byte {position}: {reason}")
        self.segment = segment
        self.position = position
        self.reason = reason


class Segment:
    """A segment file and what is known of it; `size` is the end of its last whole batch."""

    __slots__ = (
        "__weakref__",
        "base_offset",
        "begin_bytes",
        "born_age_ms",
        "corrupt_ranges",
        "directory",
        "files",
        "gaps_allowed",
        "index_interval_bytes",
        "indexed_from",
        "indexed_offset",
        "max_timestamp",
        "max_timestamp_offset",
        "path",
        "pinned",
        "retired",
        "size",
        "stored_summary",
        "sync_failed",
        "tail",
        "tally",
    )

    def __init__(
        self, files: OpenFiles, directory: str, base_offset: int, size: int, index_interval_bytes: int = 4096
    ) -> None:
        self.files = files
        self.directory = directory
        self.base_offset = base_offset
        self.path = f"{directory}/{base_offset:020d}.log"
        self.size = size
        self.begin_bytes = 0  # of the segments before it that were written since the start
        self.index_interval_bytes = index_interval_bytes
        # Covers the bytes from `indexed_from` on; the index files cover those before.
        self.tail: TailIndex | None = None
        self.indexed_from = size
        # Entries of the index files from here on are not to be believed.
        self.indexed_offset = base_offset + OFFSETS_MAX
        self.max_timestamp = -1
        self.max_timestamp_offset = -1  # -1: not known yet
        self.born_age_ms = AGE_UNKNOWN
        # Held while bytes are unsynced: only this descriptor is certain to learn of their loss.
        self.pinned: File | None = None
        self.retired = False  # removed or replaced: its file is closed when the last read in progress ends
        self.sync_failed = False
        self.tally = Tally()
        self.stored_summary: Summary | None = None  # once it was read or written
        self.corrupt_ranges: tuple[CorruptRange, ...] = ()  # by offset, and so by position; replaced, never changed
        self.gaps_allowed = False  # compaction took batches away, so that offsets may be missing

    @property
    @runs_in()
    def file(self) -> File:
        """The open file; opened where it is not. OSError."""
        return self.pinned or self.files.file(self)

    @property
    def open_file(self) -> File | None:
        """The file if it is open, for those who must not wait for the disk."""
        return self.pinned or self.files.cached_file(self)

    def name(self, suffix: str) -> str:
        """The name of another file of the segment, such as `index`."""
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
        """`size` bytes of the file. StorageFault; when not blocking WouldBlockError, else DamageFound."""
        try:
            if blocking:
                data: Bytes | None = self.file.read(size, position)
            else:
                held = self.open_file
                data = held.read_cached(size, position) if held is not None else None
        except OSError as error:
            if not blocking:
                raise WouldBlockError from None  # the reader asks again, and sees to it
            if error.errno in (errno.EIO, errno.ENOENT):
                raise DamageFound(self, position, f"cannot be read: {error.strerror}") from error
            raise StorageFault(self.path, position, f"cannot be read: {error.strerror}") from error
        if data is None or (len(data) < size and not blocking):
            raise WouldBlockError
        if len(data) < size:
            reason = f"the file ends where {size - len(data)} more bytes were synced"
            raise DamageFound(self, position + len(data), reason)
        return data

    def locate(self, offset: int, limit: int, *, blocking: bool) -> int:
        """Position of the batch that holds an offset, or of the next one; `limit` when there is none before it.

        Lands after corrupt ranges, never in them. WouldBlockError, DamageFound, StorageFault.
        """
        position = self._position_before(offset, blocking=blocking)
        try:
            return self._walk_to(offset, position, limit, blocking=blocking)
        except BrokenBatchError as broken:
            if not blocking:
                raise WouldBlockError from None
            if position > 0:  # a damaged index can point anywhere; the log itself decides
                return self._locate_without_index(offset, limit)
            raise DamageFound(self, broken.position, broken.reason) from None

    def _locate_without_index(self, offset: int, limit: int) -> int:
        self.rebuild_index()
        try:
            return self._walk_to(offset, self._position_before(offset, blocking=True), limit, blocking=True)
        except BrokenBatchError as broken:
            raise DamageFound(self, broken.position, broken.reason) from None

    @runs_in()
    def load_index(self) -> None:
        """Have the index of a closed segment in memory, for reads that do not wait. StorageFault."""
        if self.tail is None and self.indexed_from > self.index_interval_bytes:
            self._index(blocking=True)

    def stretch(self, position: int, limit: int) -> tuple[int, int]:
        """Return the bytes from `position` up to `limit` or the next corrupt range; after it if it is in one."""
        for corrupt_range in self.corrupt_ranges:
            if corrupt_range.position > position:
                limit = min(limit, corrupt_range.position)
                break
            position = max(position, corrupt_range.end_position)
        return min(position, limit), limit

    def next_held(self, offset: int) -> int:
        """An offset, or the end of the corrupt ranges that it lies in."""
        for corrupt_range in self.corrupt_ranges:
            if corrupt_range.first_offset <= offset < corrupt_range.end_offset:
                offset = corrupt_range.end_offset
        return offset

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
        if position >= limit:
            return limit
        if not self.corrupt_ranges:
            return self._walk_stretch(offset, position, limit, blocking=blocking)
        while True:
            position, end = self.stretch(position, limit)
            found = self._walk_stretch(offset, position, end, blocking=blocking)
            if found < end or end == limit:
                return found
            position = end

    def _walk_stretch(self, offset: int, position: int, limit: int, *, blocking: bool) -> int:
        expected = self.base_offset
        while position < limit:
            window = self.read(min(WINDOW_BYTES, limit - position), position, blocking=blocking)
            at, end = 0, len(window) - HEADER_BYTES
            while at <= end:
                base, length, magic, delta = _FIELDS.unpack_from(window, at)
                if magic != 2 or length < LENGTH_MIN or delta < 0 or base < expected:
                    raise BrokenBatchError(position + at, "no record batch begins here")
                if base + delta >= offset:
                    return position + at
                expected = base + delta + 1
                at += length + 12
            if at == 0:
                raise BrokenBatchError(position, "a record batch is cut short here")
            position += at
        if position > limit:
            raise BrokenBatchError(limit, "a record batch reaches past the end")
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

    @runs_in()
    def boundaries(self) -> list[tuple[int, int]]:
        """Position and last offset of each indexed batch, rising; StorageFault."""
        entries = array("Q", self._index(blocking=True)) if self.indexed_from > 0 else array("Q")
        tail = self.tail  # read once: a roll in another worker takes it away
        if tail is not None:
            entries += tail.entries()
        return [(entry & 0xFFFFFFFF, self.base_offset + (entry >> 32)) for entry in entries]

    @runs_in()
    def rebuild_index(self) -> array[int]:
        """Make the index of the part that the files should cover from the log itself; kept. StorageFault."""
        tail = TailIndex()
        due = 0
        try:
            walk = batches_in(
                self.file,
                0,
                self.indexed_from,
                corrupt_ranges=self.corrupt_ranges,
                offset=self.base_offset,
                dense=not self.may_have_gaps(topic_compacts=False),
            )
            for position, header in walk:
                if position >= due:
                    tail.add(header.base_offset - self.base_offset, header.last_offset - self.base_offset, position)
                    due = position + self.index_interval_bytes
        except BrokenBatchError:
            due = -1  # what lies before the damage is indexed; readers report the damage
        except OSError as error:
            raise StorageFault(self.path, 0, f"cannot be read: {error.strerror}") from error
        index = load_offsets(tail.offset_entries(), self.indexed_from)
        assert index is not None
        self.files.keep_index(self, index)
        return index

    @runs_in()
    def detach(self) -> None:
        """Keep to this file when its name is given to another: no index by that name is used any more.

        Only a reader of it keeps the file open. StorageFault, OSError. The indexes are replaced
        after this, so a reader that has just loaded one finds `indexed_from` 0 afterwards and uses nothing of it.
        """
        self.pinned = self.file
        self.greatest_timestamp()
        self.indexed_from = 0
        self.files.retire(self)

    @runs_in()
    def seal(self, put: PutFile | None = None) -> None:
        """Write the index files for the whole segment; the caller syncs the directory. OSError."""
        tail, fs = self.tail, self.files.fs
        put = put or partial(replace, fs, self.directory, sync_name=False)
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
            put(self.name(suffix), data)

    @runs_in()
    def read_summary(self) -> Summary | None:
        """Return the file's contents; None if it is lost, torn, damaged or of another version."""
        try:
            return summary_of(read_state(self.files.fs, f"{self.directory}/{self.name('summary')}", KIND, VERSION))
        except (OSError, StorageFault, ValueError, KeyError):
            return None

    @runs_in()
    def may_have_gaps(self, *, topic_compacts: bool) -> bool:
        """True when compaction took batches out, so that missing offsets are no loss.

        Where the summary that would say so is lost, the topic decides.
        """
        if not self.gaps_allowed:
            summary = self.stored_summary or self.read_summary()
            self.gaps_allowed = summary.compacted > 0 if summary else topic_compacts
        return self.gaps_allowed

    @runs_in()
    def summary_from_log(self, now: Now, end_offset: int, *, dense: bool) -> Summary:
        """Count this sealed segment again, which ends before `end_offset`; `dense`: compaction took nothing.

        Kept for the next time unless there is no space; what is damaged is counted up to the damage. StorageFault.
        """
        tally, end, greatest = Tally(), self.base_offset, -1
        try:
            walk = batches_in(self.file, 0, self.size, corrupt_ranges=self.corrupt_ranges, offset=end, dense=dense)
            for _, header in walk:
                tally.find(header, now)
                end, greatest = header.next_offset, max(greatest, header.max_timestamp)
        except BrokenBatchError:
            return tally.summary(self.base_offset, end, self.size, greatest)
        except OSError as error:
            raise StorageFault(self.path, 0, f"cannot be read: {error.strerror}") from error
        if dense and self.next_held(end) < end_offset:  # batches are missing that nothing took on purpose
            return tally.summary(self.base_offset, end, self.size, greatest)
        summary = tally.summary(self.base_offset, end_offset, self.size, greatest)
        try:
            self.write_summary(summary)
            self.files.fs.sync_directory(self.directory)
        except OSError as error:
            if error.errno not in OUT_OF_SPACE:
                raise fault_of(error, f"{self.directory}/{self.name('summary')}", 0) from error
        return summary

    @runs_in()
    def write_summary(self, summary: Summary) -> None:
        """Write the segment's summary; the caller syncs the directory. OSError."""
        replace(self.files.fs, self.directory, self.name("summary"), encode_summary(summary), sync_name=False)
        self.stored_summary = summary

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
            for _, header in batches_in(self.file, 0, self.indexed_from, corrupt_ranges=self.corrupt_ranges):
                if header.max_timestamp > greatest:
                    greatest = header.max_timestamp
                    tail.add_time(greatest, header.last_offset - self.base_offset)
        except BrokenBatchError:
            greatest = -1  # as with the offset index, readers report the damage
        return tail.time_entries()

    @runs_in()
    def greatest_timestamp(self) -> tuple[int, int]:
        """(timestamp, last offset of its batch), -1 without; reads the time index the first time."""
        if self.max_timestamp_offset < 0 and self.size > 0:
            try:
                found = last_time(self._time_bytes())
            except OSError as error:
                raise StorageFault(self.path, 0, f"cannot be read: {error.strerror}") from error
            self.max_timestamp, relative = found or (-1, 0)
            self.max_timestamp_offset = self.base_offset + relative
        return self.max_timestamp, self.max_timestamp_offset

    @runs_in()
    def position_for_time(self, timestamp: int, limit: int) -> int:
        """A position from which to look for the first batch at or after a time: all before it are earlier."""
        tail = self.tail
        relative = tail.offset_before_time(timestamp) if tail is not None else -1
        if relative < 0 and self.indexed_from > 0:
            relative = offset_before_time(self._time_bytes(), timestamp)
        return self.locate(self.base_offset + relative, limit, blocking=True) if relative >= 0 else 0


def encode_offsets(index: array[int]) -> bytes:
    """The bytes of a loaded offset index."""
    return struct.pack(f">{len(index)}Q", *index)
