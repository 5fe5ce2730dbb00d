"""What is there of a partition and how it is read: which segment, from which byte, up to which end.

| end | meaning |
|---|---|
| log_end_offset | what the kernel has |
| synced_offset | what fdatasync has confirmed |
| high_watermark | what anybody may see: synced_offset, or log_end_offset for a topic left to the kernel |

Reads run on the loop (what needs no waiting) and in the reader thread. What they use is replaced in one assignment by
the writer, and never changed in place: `_segments`, `_synced`, `_shown_time`.

Lives here: the reading half of a PartitionLog. Must never come in: anything that changes a file. Source: Kafka's
UnifiedLog and LocalLog; KIP-74, KIP-101.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter, itemgetter
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple
from weakref import ref

from edge_broker.errors import ErrorCode, ProtocolViolation, Refusal, StorageFault
from edge_broker.protocol.record_batch import read_header, records_of
from edge_broker.storage.batches import Bounds, BrokenBatchError, Hole, batches_in, sound_bytes
from edge_broker.storage.segment import DamageFound, Segment, WouldBlockError

if TYPE_CHECKING:
    from edge_broker.storage.age import Now
    from edge_broker.storage.epochs import LeaderEpochs
    from edge_broker.storage.filesystem import Bytes
    from edge_broker.storage.open_files import OpenFiles
    from edge_broker.storage.producers import Producers
    from edge_broker.storage.summary import Summary
    from edge_broker.storage.topic_config import LogSettings

AT_ONCE_BYTES_MAX = 4 << 20  # copied and checked by a read that does not wait: milliseconds on a board
_LENGTH = Struct(">i")
_BASE_OFFSET = Struct(">q")
_base_offset = attrgetter("base_offset")
_first = itemgetter(0)


class Synced(NamedTuple):
    """How far a partition is confirmed by the disk."""

    segment: Segment
    position: int
    offset: int


class Mark(NamedTuple):
    """Where a batch begins; holds no segment, so that one that was compacted is not kept open for it."""

    segment: ref[Segment]
    position: int


class LogState(NamedTuple):
    """What a log is made of: what recovery found of a partition, or the first segment of a new one."""

    topic: str
    partition: int
    directory: str
    settings: LogSettings
    files: OpenFiles
    segments: Sequence[Segment]  # oldest first, at least one; the last is appended to
    end: Synced
    leader_epoch: int
    epochs: LeaderEpochs
    producers: Producers


class ReadableLog:
    """The segments of one partition and their ends; PartitionLog makes them grow and shrink."""

    def __init__(self, state: LogState) -> None:
        self.topic = state.topic
        self.partition = state.partition
        self.directory = state.directory
        self.settings = state.settings
        self.leader_epoch = state.leader_epoch
        self.fault: StorageFault | None = None
        self.log_end_offset = state.end.offset
        self._segments: tuple[Segment, ...] = tuple(state.segments)
        self._active = self._segments[-1]
        self._synced = state.end
        self._shown_time = self._time_now()
        self._epochs = state.epochs
        self._log_start_offset = self._segments[0].base_offset
        self.damages = 0  # quarantined since the start
        self.damage_notes: list[str] = []  # a sentence for each, until the shell has logged them
        self._marks: dict[int, Mark] = {}  # recent confirmed ends, where readers at the tail go on

    def __repr__(self) -> str:
        return f"PartitionLog({self.topic}-{self.partition}, {self.log_start_offset}..{self.log_end_offset})"

    # what is there

    @property
    def log_start_offset(self) -> int:
        """First offset still held."""
        return self._log_start_offset

    @property
    def synced_offset(self) -> int:
        """End of what the disk has confirmed."""
        return self._synced.offset

    @property
    def high_watermark(self) -> int:
        """End of what may be shown."""
        return self.log_end_offset if self.settings.left_to_kernel else self._synced.offset

    @property
    def synced(self) -> Synced:
        """Segment, position and offset of the confirmed end, as one value."""
        return self._synced

    @property
    def active_base_offset(self) -> int:
        """First offset of the segment that is appended to."""
        return self._active.base_offset

    @property
    def shown_bytes(self) -> int:
        """Bytes that may be shown, counted from the segment that was active at the start on; what goes still counts."""
        if self.settings.left_to_kernel:
            return self._active.begin_bytes + self._active.size
        synced = self._synced
        return synced.segment.begin_bytes + synced.position

    @property
    def size(self) -> int:
        """Bytes in all segments."""
        return sum(segment.size for segment in self._segments)

    @property
    def segments_count(self) -> int:
        """How many segments there are, the active one included."""
        return len(self._segments)

    def bounds(self, segment: Segment) -> Bounds | None:
        """What is known of a segment apart from its bytes; None when it is not one of this log any more. [worker]"""
        synced = self._synced  # before the segments: a roll replaces them first
        segments = self._segments
        for at, one in enumerate(segments):
            if one is segment:
                dense = not self.may_have_gaps(segment)
                if at + 1 < len(segments):
                    return Bounds(segment.size, segments[at + 1].base_offset, dense)
                return Bounds(synced.position, synced.offset, dense)
        return None

    def summary(self, segment: Segment, now: Now) -> Summary:
        """The numbers of a sealed segment; made again from the log when they are lost. StorageFault. [worker: files]"""
        if segment.stored_summary is None:
            segment.stored_summary = segment.read_summary() or self._count(segment, now)
        return segment.stored_summary

    def _count(self, segment: Segment, now: Now) -> Summary:
        bounds = self.bounds(segment)
        if bounds is None:
            raise StorageFault(segment.path, 0, "was removed meanwhile")
        return segment.summary_from_log(now, bounds.end_offset, dense=bounds.dense)

    def note_damage(self, found: DamageFound, hole: Hole) -> None:
        """Count and say what was quarantined. [worker: files]"""
        self.damages += 1
        lost = f"offsets {hole.first_offset} to {hole.end_offset - 1} are lost and in the ledger"
        self.damage_notes.append(f"{found}; {lost}, readers go on behind byte {hole.end_position}")

    def take_damage_notes(self) -> list[str]:
        """What was quarantined and not said yet, a sentence each; the caller says it."""
        notes = self.damage_notes[:]
        del self.damage_notes[: len(notes)]  # the worker may append meanwhile
        return notes

    def _time_now(self) -> tuple[int, int]:
        return self._active.max_timestamp, self._active.max_timestamp_offset

    # reading

    def read(self, offset: int, bytes_max: int, *, blocking: bool) -> Bytes | None:
        """Batches as they lie on disk, from the one that holds `offset` on; b"" at the end.

        Whole batches, each checked by its CRC and offset in this call; one at least, even if it is larger than
        `bytes_max`. Never holds bytes above the high watermark, of two segments, or of both sides of a hole: an offset
        in a hole is answered from the next batch on, as after compaction. None: ask again with `blocking`, as the disk
        would have to be waited for, there are more than AT_ONCE_BYTES_MAX, or something is not as it was written.
        Refusal OFFSET_OUT_OF_RANGE, StorageFault; only when blocking DamageFound: quarantine it (damage.py), ask again.
        Reads what the loop replaces in one assignment, so any thread may call it; with `blocking` only a worker
        should.
        """
        if self.fault is not None:
            raise self.fault.kept()
        segments = self._segments
        if not self._log_start_offset <= offset <= self.log_end_offset:
            raise self._out_of_range(offset)
        if offset >= self.high_watermark:
            return b""
        at = len(segments) - 1
        if offset < segments[at].base_offset:
            at = max(bisect_right(segments, offset, key=_base_offset) - 1, 0)
        try:
            return self._read_from(segments, at, offset, bytes_max, blocking=blocking)
        except WouldBlockError:
            return None
        except (StorageFault, DamageFound):
            if offset < self._log_start_offset:  # retention took the file away in the meantime
                raise self._out_of_range(offset) from None
            raise

    def _read_from(self, segments: Sequence[Segment], at: int, offset: int, bytes_max: int, *, blocking: bool) -> Bytes:
        while at < len(segments):
            segment = segments[at]
            offset = max(offset, segment.base_offset)
            data = self._read_segment(segment, offset, bytes_max, blocking=blocking)
            if data:
                return data
            at += 1
            if at < len(segments) and segment.next_held(offset) < segments[at].base_offset:
                self._behind_the_end(segment, offset, blocking=blocking)
        return b""

    def _behind_the_end(self, segment: Segment, offset: int, *, blocking: bool) -> None:
        """A segment ends before an offset that it should hold: only compaction may have done that."""
        if not segment.gaps_allowed:
            if not blocking:
                raise WouldBlockError
            if not self.may_have_gaps(segment):
                raise DamageFound(segment, segment.size, f"offset {offset} and all behind it are missing")

    def may_have_gaps(self, segment: Segment) -> bool:
        """True when compaction took batches out of a segment, so that missing offsets are no loss. [worker]"""
        if segment is self._active:
            return segment.gaps_allowed
        return segment.may_have_gaps(topic_compacts=self.settings.compacts)

    def _out_of_range(self, offset: int) -> Refusal:
        return Refusal(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} of {self!r} is out of range")

    def _limit(self, segment: Segment) -> int:
        """End of what may be shown of a segment; a sealed one is synced whole."""
        synced = self._synced
        if segment.base_offset > synced.segment.base_offset:
            return segment.size if self.settings.left_to_kernel else 0
        return segment.size if self.settings.left_to_kernel or segment is not synced.segment else synced.position

    def _read_segment(self, segment: Segment, offset: int, bytes_max: int, *, blocking: bool) -> Bytes:
        """Batches that were checked just now, wherever they came from: memory may have them back from the disk."""
        limit = self._limit(segment)
        if blocking:
            segment.load_index()
        position, end = self._place(segment, offset, limit, blocking=blocking)
        if position >= end:
            return b""
        data = self._read_batches(segment, position, end, bytes_max, blocking=blocking)
        return self._checked(segment, offset, position, data, blocking=blocking)

    def _place(self, segment: Segment, offset: int, limit: int, *, blocking: bool) -> tuple[int, int]:
        """Where the batch of an offset begins, or the next one, and the end of what may be read from there at once."""
        mark = self._marks.get(offset)
        if mark is not None and mark.segment() is segment and mark.position < limit:
            position = mark.position
        else:
            position = segment.locate(offset, limit, blocking=blocking)
        return segment.stretch(position, limit) if segment.holes else (position, limit)

    def _read_batches(self, segment: Segment, position: int, end: int, bytes_max: int, *, blocking: bool) -> Bytes:
        """A whole batch at least, whatever `bytes_max` says."""
        size = min(max(bytes_max, 12), end - position)
        if size > AT_ONCE_BYTES_MAX and not blocking:
            raise WouldBlockError
        data = segment.read(size, position, blocking=blocking)
        first = _LENGTH.unpack_from(data, 8)[0] + 12
        if first <= size:
            return data
        if first > end - position:
            if not blocking:
                raise WouldBlockError
            raise DamageFound(segment, position, f"a record batch of {first} bytes reaches past the end")
        return segment.read(first, position, blocking=blocking)

    def _checked(self, segment: Segment, offset: int, position: int, data: Bytes, *, blocking: bool) -> Bytes:
        """The whole batches of what was read, up to the first one that is not as it was written."""
        base_offset = _BASE_OFFSET.unpack_from(data)[0]
        due = segment.next_held(offset)
        due = base_offset if segment.base_offset <= base_offset <= due else due
        sound, _, reason = sound_bytes(data, due, dense=not segment.gaps_allowed)
        if reason and blocking and not segment.gaps_allowed and self.may_have_gaps(segment):
            sound, _, reason = sound_bytes(data, due, dense=False)
        if sound:
            return memoryview(data)[:sound]
        if not blocking:
            raise WouldBlockError
        raise DamageFound(segment, position, reason or "a record batch is cut short here")

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record at or after a time, None when there is none. [worker]

        Nothing above the high watermark counts. A batch whose codec cannot be unpacked here answers with its base
        offset and base timestamp. StorageFault.
        """
        if self.fault is not None:
            raise self.fault.kept()
        for segment in self._segments:
            try:
                found = self._first_in(segment, timestamp_ms)
            except (OSError, BrokenBatchError, DamageFound, StorageFault) as error:
                if segment.base_offset < self._log_start_offset:  # retention took the file away in the meantime
                    continue
                if isinstance(error, OSError):
                    raise StorageFault(segment.path, 0, error.strerror or repr(error)) from error
                if isinstance(error, BrokenBatchError):
                    raise DamageFound(segment, error.position, error.reason) from error
                raise
            if found is not None:
                return found
        return None

    def _first_in(self, segment: Segment, timestamp_ms: int) -> tuple[int, int] | None:
        limit = self._limit(segment)
        if not limit or segment.greatest_timestamp()[0] < timestamp_ms:
            return None
        return self._first_at(segment, timestamp_ms, limit)

    def _first_at(self, segment: Segment, timestamp_ms: int, limit: int) -> tuple[int, int] | None:
        start = segment.position_for_time(timestamp_ms, limit)
        for position, header in batches_in(segment.file, start, limit, start, holes=segment.holes):
            if header.max_timestamp < timestamp_ms:
                continue
            batch = memoryview(segment.read(header.size, position, blocking=True))
            try:
                found = [record for record in records_of(batch) if record.timestamp >= timestamp_ms]
            except (Refusal, ProtocolViolation):
                return header.base_offset, header.base_timestamp
            if found:
                return found[0].offset, found[0].timestamp
        return None

    def max_timestamp(self) -> tuple[int, int]:
        """(offset, timestamp) of the last record of the batch with the greatest timestamp shown; (-1, -1) when empty.

        Reads the end of each sealed segment's time index the first time, so a worker should call it. StorageFault.
        """
        if self.fault is not None:
            raise self.fault.kept()
        shown = self._time_now() if self.settings.left_to_kernel else self._shown_time
        greatest = max((*self._sealed_times(), shown), key=_first)
        return greatest[1], greatest[0]

    def _sealed_times(self) -> Iterator[tuple[int, int]]:
        for segment in self._segments[:-1]:
            try:
                yield segment.greatest_timestamp()
            except StorageFault:
                if segment.base_offset >= self._log_start_offset:  # else retention took the file away in the meantime
                    raise

    def epoch_at(self, offset: int) -> int:
        """The leader epoch in which the batch at an offset was written; -1 when there is none that old."""
        return self._epochs.at(offset)

    def epoch_end(self, leader_epoch: int) -> tuple[int, int]:
        """The greatest epoch not above this one and where it ended, at most the high watermark; (-1, -1) if unknown."""
        return self._epochs.end(leader_epoch, self.leader_epoch, self.high_watermark)


def whole_batches(data: Bytes) -> list[memoryview]:
    """The batches of a read that are whole, each as a view."""
    view, position, found = memoryview(data), 0, []
    while len(view) - position >= 61:  # the bare header that compaction leaves of a batch is one, too
        size = read_header(view, position).size
        if position + size > len(view):
            break
        found.append(view[position : position + size])
        position += size
    return found
