"""How a partition is read: which segment, from which byte, up to which end.

Reads run on the loop (what needs no waiting) and in the reader thread.

Contains: LogReader. Does not contain: anything that changes a file. Source: Kafka's UnifiedLog and LocalLog;
KIP-74, KIP-101.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter, itemgetter
from struct import Struct
from typing import TYPE_CHECKING

from edge_broker.errors import ErrorCode, ProtocolViolation, Refusal, StorageFault
from edge_broker.protocol.record_batch import read_header, records_of
from edge_broker.storage.log.log_state import LogEnd, LogState
from edge_broker.storage.segment.batch_scan import BrokenBatchError, batches_in, sound_bytes
from edge_broker.storage.segment.segment import DamageFound, Segment, WouldBlockError
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.storage.files.filesystem import Bytes

AT_ONCE_BYTES_MAX = 4 << 20  # copied and checked by a read that does not wait: milliseconds on a board
_LENGTH = Struct(">i")
_BASE_OFFSET = Struct(">q")
_base_offset = attrgetter("base_offset")
_first = itemgetter(0)


class LogReader:
    """Reads of one partition; any thread may call them, a blocking one only a worker should."""

    def __init__(self, state: LogState) -> None:
        self.state = state

    def read(self, offset: int, bytes_max: int, *, blocking: bool) -> Bytes | None:
        """Batches as they lie on disk, from the one that holds `offset` on; b"" at the end.

        Whole batches, each checked by its CRC and offset in this call; one at least, even if it is larger than
        `bytes_max`. Never holds bytes above the high watermark, of two segments, or of both sides of a corrupt range:
        an offset in a corrupt range is answered from the next batch on, as after compaction. None: ask again with
        `blocking`, as the disk would have to be waited for, there are more than AT_ONCE_BYTES_MAX, or something is not
        as it was written. Refusal OFFSET_OUT_OF_RANGE, StorageFault; only when blocking DamageFound: quarantine it
        (loss/quarantine.py), ask again. Reads what the loop replaces in one assignment, so any thread may call it; with
        `blocking` only a worker should.
        """
        state = self.state
        if state.fault is not None:
            raise state.fault.without_frames()
        segments = state.segments
        if not state.log_start_offset <= offset <= state.log_end_offset:
            raise self._out_of_range(offset)
        if offset >= self._end_offset():
            return b""
        at = len(segments) - 1
        if offset < segments[at].base_offset:
            at = max(bisect_right(segments, offset, key=_base_offset) - 1, 0)
        try:
            return self._read_from(segments, at, offset, bytes_max, blocking=blocking)
        except WouldBlockError:
            return None
        except (StorageFault, DamageFound):
            if offset < state.log_start_offset:  # retention took the file away in the meantime
                raise self._out_of_range(offset) from None
            raise

    def _end_offset(self) -> int:
        """End of what is read here."""
        return self.state.shown.offset

    def _limit(self, segment: Segment) -> int:
        """End of what is read here of a segment."""
        return self.state.limit(segment)

    def _read_from(self, segments: Sequence[Segment], at: int, offset: int, bytes_max: int, *, blocking: bool) -> Bytes:
        while at < len(segments):
            segment = segments[at]
            offset = max(offset, segment.base_offset)
            data = self._read_segment(segment, offset, bytes_max, blocking=blocking)
            if data:
                return data
            at += 1
            if at < len(segments) and segment.next_held(offset) < min(segments[at].base_offset, self._end_offset()):
                self._behind_the_end(segment, offset, blocking=blocking)
        return b""

    def _behind_the_end(self, segment: Segment, offset: int, *, blocking: bool) -> None:
        """A segment ends before an offset that it should hold: only compaction may have done that."""
        if not segment.gaps_allowed:
            if not blocking:
                raise WouldBlockError
            if not self.state.may_have_gaps(segment):
                raise DamageFound(segment, segment.size, f"offset {offset} and all after it are missing")

    def _out_of_range(self, offset: int) -> Refusal:
        return Refusal(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is out of range of {self.state!r}")

    def _read_segment(self, segment: Segment, offset: int, bytes_max: int, *, blocking: bool) -> Bytes:
        """Batches that were checked just now, from any place: memory may have read them back from the disk."""
        limit = self._limit(segment)
        if blocking:
            segment.load_index()
        position, end = self._place(segment, offset, limit, blocking=blocking)
        if position >= end:
            return b""
        data = self._read_batches(segment, position, end, bytes_max, blocking=blocking)
        sound, next_offset = self._check_batches(segment, offset, position, data, blocking=blocking)
        if not blocking and position + sound < end:
            self.state.remember(next_offset, segment, position + sound)
        return memoryview(data)[:sound]

    def _place(self, segment: Segment, offset: int, limit: int, *, blocking: bool) -> tuple[int, int]:
        """Where the batch of an offset begins, or the next one, and the end of what may be read from there at once."""
        mark = self.state.marks.get(offset)
        if mark is not None and mark.segment() is segment and mark.position < limit:
            position = mark.position
        else:
            position = segment.locate(offset, limit, blocking=blocking)
        return segment.stretch(position, limit) if segment.corrupt_ranges else (position, limit)

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

    def _check_batches(
        self, segment: Segment, offset: int, position: int, data: Bytes, *, blocking: bool
    ) -> tuple[int, int]:
        """Return the bytes of the whole batches that were read, up to the first corrupt one, and the
        offset after them.
        """
        base_offset = _BASE_OFFSET.unpack_from(data)[0]
        due = segment.next_held(offset)
        due = base_offset if segment.base_offset <= base_offset <= due else due
        sound, behind, reason = sound_bytes(data, due, dense=not segment.gaps_allowed)
        if reason and blocking and not segment.gaps_allowed and self.state.may_have_gaps(segment):
            sound, behind, reason = sound_bytes(data, due, dense=False)
        if sound:
            return sound, behind
        if not blocking:
            raise WouldBlockError
        raise DamageFound(segment, position, reason or "a record batch is cut short here")

    @runs_in()
    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record at or after a time, None when there is none.

        Nothing above the high watermark counts. A batch whose codec cannot be unpacked here answers with its base
        offset and base timestamp. StorageFault.
        """
        state = self.state
        if state.fault is not None:
            raise state.fault.without_frames()
        for segment in state.segments:
            try:
                found = self._first_in(segment, timestamp_ms)
            except (OSError, BrokenBatchError, DamageFound, StorageFault) as error:
                if segment not in state.segments:  # retention took the file away in the meantime
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
        limit = self.state.limit(segment)
        if not limit or segment.greatest_timestamp()[0] < timestamp_ms:
            return None
        return self._first_at(segment, timestamp_ms, limit)

    def _first_at(self, segment: Segment, timestamp_ms: int, limit: int) -> tuple[int, int] | None:
        start, start_offset = segment.position_for_time(timestamp_ms, limit), self.state.log_start_offset
        for position, header in batches_in(segment.file, start, limit, start, corrupt_ranges=segment.corrupt_ranges):
            if header.max_timestamp < timestamp_ms or header.next_offset <= start_offset:
                continue
            batch = memoryview(segment.read(header.size, position, blocking=True))
            try:
                found = [
                    record
                    for record in records_of(batch)
                    if record.timestamp >= timestamp_ms and record.offset >= start_offset
                ]
            except (Refusal, ProtocolViolation):
                return max(header.base_offset, start_offset), header.base_timestamp
            if found:
                return found[0].offset, found[0].timestamp
        return None

    def max_timestamp(self) -> tuple[int, int]:
        """(offset, timestamp) of the last record of the batch with the greatest timestamp shown; (-1, -1) when empty.

        Reads the end of each sealed segment's time index the first time, so a worker should call it. StorageFault.
        """
        state = self.state
        if state.fault is not None:
            raise state.fault.without_frames()
        shown = state.shown
        greatest = (
            shown.greatest
            if shown.segment.base_offset >= state.log_start_offset
            else self._max_timestamp_after_start(shown.segment)
        )
        greatest = max((*self._times_before(shown), greatest), key=_first)
        return greatest[1], greatest[0]

    def _times_before(self, shown: LogEnd) -> Iterator[tuple[int, int]]:
        state = self.state
        for segment in state.segments:
            if segment is shown.segment or segment.base_offset >= shown.offset:
                continue
            try:
                whole = segment.base_offset >= state.log_start_offset
                yield segment.greatest_timestamp() if whole else self._max_timestamp_after_start(segment)
            except StorageFault:
                if segment in state.segments:  # else retention took the file away in the meantime
                    raise

    def _max_timestamp_after_start(self, segment: Segment) -> tuple[int, int]:
        """The greatest timestamp after the log's start, which is in this segment, and its batch's last offset."""
        limit, start_offset = self.state.limit(segment), self.state.log_start_offset
        greatest = (-1, -1)
        try:
            for _, header in batches_in(segment.file, 0, limit, corrupt_ranges=segment.corrupt_ranges):
                if header.next_offset > start_offset and header.max_timestamp > greatest[0]:
                    greatest = (header.max_timestamp, header.last_offset)
        except OSError as error:
            raise StorageFault(segment.path, 0, error.strerror or repr(error)) from error
        except BrokenBatchError as error:
            raise DamageFound(segment, error.position, error.reason) from error
        return greatest

    def epoch_at(self, offset: int) -> int:
        """The leader epoch in which the batch at an offset was written; -1 when there is none that old."""
        return self.state.epochs.at(offset)

    def epoch_end(self, leader_epoch: int) -> tuple[int, int]:
        """The greatest epoch not above this one and where it ended, at most the high watermark; (-1, -1) if unknown."""
        state = self.state
        return state.epochs.end(leader_epoch, state.leader_epoch, state.shown.offset)


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
