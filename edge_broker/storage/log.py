"""The log of one partition: what is written, what is synced, what is shown.

| end | meaning |
|---|---|
| log_end_offset | what the kernel has |
| synced_offset | what fdatasync has confirmed |
| high_watermark | what anybody may see: synced_offset, or log_end_offset for a topic left to the kernel |

| state | event | next |
|---|---|---|
| open | append finds the segment full or too old | rolling: appends raise RollDue |
| rolling | roll() ends | open, in the next segment |
| open, rolling | a write, sync or roll fails | offline: `fault` is set, every method raises it |
| open | the system has no space | open: the append is refused and leaves nothing behind |

Three threads: the loop (append, begin_sync, finish_sync, reads that do not block), the disk worker (SyncTicket.run,
roll, delete_expired, and the store's methods), the reader (blocking reads). What several of them read is replaced in
one assignment and never changed in place: `_segments`, `_synced`, `_shown_time`.

Must never come in: record contents on the way of append and read, clocks, threads. Source: Kafka's UnifiedLog;
KIP-74, KIP-101.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter, itemgetter
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from edge_broker.errors import ErrorCode, ProtocolViolation, Refusal, StorageFault
from edge_broker.protocol.crc import crc32c
from edge_broker.protocol.record_batch import (
    CHECKED_POSITION,
    CRC_POSITION,
    LOG_APPEND_TIME,
    BatchHeader,
    assign_offsets,
    read_header,
    records_of,
)
from edge_broker.storage.epochs import KIND, LeaderEpochs, Start
from edge_broker.storage.producers import Place, Producers, encode_snapshot
from edge_broker.storage.segment import OFFSETS_MAX, BrokenBatchError, OpenFiles, Segment, WouldBlockError, batches_in
from edge_broker.storage.state_files import OUT_OF_SPACE, encode_state, fault_of, replace, write_all

if TYPE_CHECKING:
    from edge_broker.storage.filesystem import Bytes
    from edge_broker.storage.topic_config import LogSettings

SNAPSHOTS_KEPT = 2
EXPIRY_INTERVAL_MS = 60_000
MARKS_KEPT = 16
_LENGTH = Struct(">i")
_MAX_TIMESTAMP = Struct(">q")
_MAX_TIMESTAMP_POSITION = 35
_ATTRIBUTES_LOW_POSITION = 22
_base_offset = attrgetter("base_offset")
_first = itemgetter(0)


class RollDue(Exception):
    """Nothing was written: the segment must be closed first."""


class Appended(NamedTuple):
    """Where batches lie; `append_time_ms` is -1 unless the broker stamped its time; `duplicate`: written before."""

    base_offset: int
    end_offset: int
    append_time_ms: int
    duplicate: bool = False


class Synced(NamedTuple):
    """How far a partition is confirmed by the disk."""

    segment: Segment
    position: int
    offset: int


class SyncTicket:
    """What one sync will confirm: everything written when it was begun."""

    __slots__ = ("end", "shown_time")

    def __init__(self, end: Synced, shown_time: tuple[int, int]) -> None:
        self.end = end
        self.shown_time = shown_time

    def run(self) -> None:
        """Wait for the disk; StorageFault. Reads only this ticket; the loop may append meanwhile. [worker]"""
        try:
            self.end.segment.datasync()
        except OSError as error:
            raise fault_of(error, self.end.segment.path, self.end.position) from error


class PartitionLog:
    """One partition; made by recovery or by LogStore.make_topic, not by hand."""

    def __init__(
        self,
        topic: str,
        partition: int,
        directory: str,
        settings: LogSettings,
        files: OpenFiles,
        segments: Sequence[Segment],
        end: Synced,
        leader_epoch: int,
        epochs: LeaderEpochs,
        producers: Producers,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.directory = directory
        self.settings = settings
        self.leader_epoch = leader_epoch
        self.fault: StorageFault | None = None
        self.damage: str | None = None  # set: readable below the damage, appends are refused with this sentence
        self.rolling = False
        self.log_end_offset = end.offset
        self.write_positions: Callable[[], None] = _nothing  # the store's, for all partitions; OSError
        self._files = files
        self._segments: tuple[Segment, ...] = tuple(segments)
        self._active = self._segments[-1]
        self._synced = end
        self._shown_time = (self._active.max_timestamp, self._active.max_timestamp_offset)
        self._epochs = epochs
        self._epochs_written: tuple[Start, ...] = ()  # what the checkpoint file says
        self._producers = producers
        self._expire_at_ms = 0
        self._index_due = 0
        self._log_start_offset = self._segments[0].base_offset
        self._roll_refusal: Refusal | None = None
        self._snapshot_offset = -1
        self._marks: dict[int, Synced] = {}  # recent confirmed ends, where readers at the tail go on

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
    def size(self) -> int:
        """Bytes in all segments."""
        return sum(segment.size for segment in self._segments)

    @property
    def segments_count(self) -> int:
        """How many segments there are, the active one included."""
        return len(self._segments)

    def fail(self, fault: StorageFault) -> None:
        """Take the partition offline; the first fault stays."""
        self.fault = self.fault or fault

    # writing

    def append(self, records: memoryview, batches: list[BatchHeader], now_ms: int) -> Appended:
        """Stamp offsets and leader epoch into the batches in place and write them with one call.

        `records` must be writable and hold exactly `batches`, checked. Raises Refusal (the producer's fault, or no
        space left: nothing is written), RollDue, StorageFault (the partition is offline then).
        """
        if self.fault is not None:
            raise self.fault
        if self.damage is not None or self._roll_refusal is not None:
            raise self._refusal()
        news = None
        if batches[0].producer_id >= 0:
            if now_ms >= self._expire_at_ms:
                self._expire_at_ms = now_ms + EXPIRY_INTERVAL_MS
                self._producers.expire(now_ms, self.settings.producer_id_expiration_ms)
            again, news = self._producers.admit(batches, self.log_end_offset, now_ms)
            if again is not None:
                return Appended(again.base_offset, again.last_offset + 1, -1, duplicate=True)
        if self.rolling or self._roll_is_due(len(records), batches, now_ms):
            self.rolling = True
            raise RollDue
        end_offset = self._assign(records, batches, now_ms)
        self._write(records)
        base_offset = self.log_end_offset
        self._written(records, batches, base_offset, now_ms)
        if news:
            self._producers.keep(news)
        self.log_end_offset = end_offset
        return Appended(base_offset, end_offset, now_ms if self.settings.log_append_time else -1)

    def _refusal(self) -> Refusal:
        if self.damage is not None:
            return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, self.damage)
        refusal, self._roll_refusal = self._roll_refusal, None
        assert refusal is not None
        return refusal

    def _roll_is_due(self, size: int, batches: list[BatchHeader], now_ms: int) -> bool:
        active, settings = self._active, self.settings
        if not active.size:
            return False
        span = self.log_end_offset - active.base_offset + sum(batch.last_offset_delta + 1 for batch in batches)
        return (
            active.size + size > settings.segment_bytes
            or now_ms - active.born_ms > settings.segment_ms
            or span > OFFSETS_MAX
        )

    def _assign(self, records: memoryview, batches: list[BatchHeader], now_ms: int) -> int:
        offset = self.log_end_offset
        position = 0
        for batch in batches:
            if self.settings.log_append_time:
                stamp_append_time(records[position : position + batch.batch_length + 12], now_ms)
                batch.max_timestamp = now_ms
            assign_offsets(records, position, offset, self.leader_epoch)
            offset += batch.last_offset_delta + 1
            position += batch.batch_length + 12
        assert position == len(records), "append was given other bytes than the batches that were checked"
        return offset

    def _write(self, records: memoryview) -> None:
        active = self._active
        try:
            if active.pinned is None:
                active.pinned = active.file
            written = active.pinned.write(records, active.size)
            if written != len(records):
                write_all(active.pinned, records[written:], active.size + written)
        except OSError as error:
            self._take_back(error)

    def _take_back(self, error: OSError) -> None:
        """Leave no torn bytes where later batches will lie; only a clean retreat keeps the partition online."""
        active = self._active
        fault = fault_of(error, active.path, active.size)
        if error.errno in OUT_OF_SPACE and active.pinned is not None:
            try:
                active.pinned.truncate(active.size)
            except OSError as second:
                fault = fault_of(second, active.path, active.size)
            else:
                raise Refusal(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"{fault.reason}: {active.path}; nothing was written, free space"
                ) from error
        self.fail(fault)
        raise fault from error

    def _written(self, records: memoryview, batches: list[BatchHeader], base_offset: int, now_ms: int) -> None:
        active = self._active
        position = active.size
        if position == 0:
            active.born_ms = now_ms
        first_last = base_offset + batches[0].last_offset_delta
        offset = base_offset
        for batch in batches:
            offset += batch.last_offset_delta + 1
            if batch.max_timestamp > active.max_timestamp:
                active.max_timestamp = batch.max_timestamp
                active.max_timestamp_offset = offset - 1
        if position >= self._index_due:
            self._index_due = active.note(base_offset, first_last, position, self._index_due)
        if self.leader_epoch > self._epochs.latest:
            self._epochs.note(self.leader_epoch, base_offset)
        active.size = position + len(records)

    def begin_sync(self) -> SyncTicket | None:
        """A ticket for what is written and not yet confirmed; None when there is nothing."""
        if self.fault is not None or self._synced.offset == self.log_end_offset:
            return None
        return SyncTicket(Synced(self._active, self._active.size, self.log_end_offset), self._time_now())

    def finish_sync(self, ticket: SyncTicket) -> None:
        """Show what the ticket's sync confirmed."""
        if self.rolling or self.fault is not None:
            return  # a roll syncs and shows everything itself, in the worker
        if ticket.end.offset > self._synced.offset:
            self._synced = ticket.end
            self._shown_time = ticket.shown_time
            self._marks[ticket.end.offset] = ticket.end
            if len(self._marks) > MARKS_KEPT:
                del self._marks[next(iter(self._marks))]
            if ticket.end.position == ticket.end.segment.size:
                ticket.end.segment.pinned = None

    def _time_now(self) -> tuple[int, int]:
        return self._active.max_timestamp, self._active.max_timestamp_offset

    # closing segments

    def roll(self) -> None:
        """Sync the active segment, then begin the next. Reads and replaces what appends change: none may run. [worker]

        Without space for the next segment the log stays as it is and the next append is refused. StorageFault takes
        it offline.
        """
        if not self.rolling or self.fault is not None:
            return
        try:
            self._close_active()
            self._begin_segment()
            self.write_positions()
        except StorageFault as failed:
            self.fail(failed)
            raise
        except OSError as error:
            fault = fault_of(error, self._active.path, self._active.size)
            if error.errno not in OUT_OF_SPACE:
                self.fail(fault)
                raise fault from error
            self._roll_refusal = Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"{fault}; nothing was written, free space")
        finally:
            self.rolling = False

    def _close_active(self) -> None:
        """Sync what is written, write down what the next start needs; the caller syncs the directory."""
        active = self._active
        try:
            if self._synced.offset != self.log_end_offset:
                active.datasync()
        except OSError as error:
            raise fault_of(error, active.path, active.size) from error
        self._confirm()
        active.seal()
        self._write_epochs()
        self._write_snapshot()

    def _confirm(self) -> None:
        active = self._active
        self._synced = Synced(active, active.size, self.log_end_offset)
        self._shown_time = self._time_now()
        active.pinned = None

    def _begin_segment(self) -> None:
        segment = Segment(self._files, self.directory, self.log_end_offset, 0, self.settings.index_interval_bytes)
        make_segment_file(self._files, segment)
        segment.open_tail()
        sealed = self._active
        self._index_due = 0
        self._active = segment
        self._segments = (*self._segments, segment)
        self._synced = Synced(segment, 0, self.log_end_offset)
        sealed.indexed_from = sealed.size
        sealed.tail = None

    def _write_snapshot(self) -> None:
        active, fs = self._active, self._files.fs
        if self._snapshot_offset == self.log_end_offset:
            return
        place = Place(self.log_end_offset, active.base_offset, active.size, *self._time_now(), active.born_ms)
        data = encode_snapshot(place, self._producers.known())
        replace(fs, self.directory, f"{self.log_end_offset:020d}.snapshot", data, sync_name=False)
        found = sorted(name for name in fs.names(self.directory) if name.endswith(".snapshot"))
        for name in found[:-SNAPSHOTS_KEPT]:
            fs.remove(f"{self.directory}/{name}")

    def trust_files(self, epochs_written: tuple[Start, ...], snapshot_offset: int = -1) -> None:
        """Learn what the epoch checkpoint says and where a durable snapshot lies, so as not to write them again."""
        self._epochs_written = epochs_written
        self._snapshot_offset = snapshot_offset

    def _write_epochs(self) -> None:
        starts = self._epochs.starts
        if starts != self._epochs_written:
            data = encode_state(KIND, 1, self._epochs.lines())
            replace(self._files.fs, self.directory, "leader-epoch-checkpoint", data)
            self._epochs_written = starts

    def stop(self) -> None:
        """Sync and write down everything; nothing else may run. StorageFault. [worker]"""
        if self.fault is not None or self.damage is not None or self._snapshot_offset == self.log_end_offset:
            return
        try:
            self._close_active()
            self._files.fs.sync_directory(self.directory)
        except StorageFault as failed:
            self.fail(failed)
            raise
        except OSError as error:
            fault = fault_of(error, self._active.path, self._active.size)
            self.fail(fault)
            raise fault from error

    def close_files(self) -> None:
        """Let go of every file; reads under way keep theirs until they end."""
        for segment in self._segments:
            segment.pinned = None
            self._files.forget(segment)

    # reading

    def read(self, offset: int, bytes_max: int, *, blocking: bool) -> Bytes | None:
        """Batches as they lie on disk, from the one that holds `offset` on; b"" at the end.

        The first batch is whole even if it is larger than `bytes_max`; the last may be cut off by it, as the protocol
        allows and clients expect (`whole_batches` leaves that one out). Never holds bytes above the high watermark,
        nor of two segments. None: the disk would have to be waited for. Refusal OFFSET_OUT_OF_RANGE, StorageFault.
        Reads what the loop replaces in one assignment, so any thread may call it; with `blocking` only a worker
        should.
        """
        if self.fault is not None:
            raise self.fault
        segments = self._segments
        if not self._log_start_offset <= offset <= self.log_end_offset:
            raise self._out_of_range(offset)
        if offset >= self.high_watermark:
            return b""
        at = len(segments) - 1
        if offset < segments[at].base_offset:
            at = bisect_right(segments, offset, key=_base_offset) - 1
        try:
            while at < len(segments):
                data = self._read_segment(segments[at], offset, bytes_max, blocking=blocking)
                if data:
                    return data
                at += 1
        except WouldBlockError:
            return None
        except StorageFault:
            if offset < self._log_start_offset:  # retention took the file away in the meantime
                raise self._out_of_range(offset) from None
            raise
        return b""

    def _out_of_range(self, offset: int) -> Refusal:
        return Refusal(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} of {self!r} is out of range")

    def _limit(self, segment: Segment) -> int:
        """End of what may be shown of a segment; a sealed one is synced whole."""
        synced = self._synced
        if segment.base_offset > synced.segment.base_offset:
            return segment.size if self.settings.left_to_kernel else 0
        return segment.size if self.settings.left_to_kernel or segment is not synced.segment else synced.position

    def _read_segment(self, segment: Segment, offset: int, bytes_max: int, *, blocking: bool) -> Bytes:
        limit = self._limit(segment)
        mark = self._marks.get(offset)
        if mark is not None and mark.segment is segment and mark.position < limit:
            position = mark.position
        else:
            position = segment.locate(offset, limit, blocking=blocking)
        if position >= limit:
            return b""
        size = min(max(bytes_max, 12), limit - position)
        data = segment.read(size, position, blocking=blocking)
        first = _LENGTH.unpack_from(data, 8)[0] + 12
        if first <= size:
            return data
        if first > limit - position:
            raise StorageFault(
                segment.path, position, f"a record batch of {first} bytes reaches past the end; restore the file"
            )
        return segment.read(first, position, blocking=blocking)

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record at or after a time, None when there is none. [worker]

        Nothing above the high watermark counts. A batch whose codec cannot be unpacked here answers with its base
        offset and base timestamp. StorageFault.
        """
        if self.fault is not None:
            raise self.fault
        for segment in self._segments:
            try:
                found = self._first_in(segment, timestamp_ms)
            except (OSError, BrokenBatchError, StorageFault) as error:
                if segment.base_offset < self._log_start_offset:  # retention took the file away in the meantime
                    continue
                if isinstance(error, StorageFault):
                    raise
                raise StorageFault(segment.path, getattr(error, "position", 0), str(error)) from error
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
        for position, header in batches_in(segment.file, start, limit):
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
            raise self.fault
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

    def epoch_end(self, leader_epoch: int) -> tuple[int, int]:
        """The greatest epoch not above this one and where it ended, at most the high watermark; (-1, -1) if unknown."""
        return self._epochs.end(leader_epoch, self.leader_epoch, self.high_watermark)

    # retention

    def expired(self, now_ms: int) -> bool:
        """True when delete_expired would delete something, as far as is known without reading. Safe on the loop."""
        return (
            self._expired(now_ms, lambda segment: segment.max_timestamp if segment.max_timestamp_offset >= 0 else 0) > 0
        )

    def delete_expired(self, now_ms: int) -> int:
        """Delete whole sealed segments by retention.ms and retention.bytes; how many. [worker]

        Oldest first, each gone from the disk before the next, so that a crash leaves no hole; needs no free space.
        Replaces `_segments`, as only roll does, in the same worker. A read under way keeps the file it has open.
        StorageFault takes the partition offline.
        """
        try:
            count = self._expired(now_ms, lambda segment: segment.greatest_timestamp()[0])
            gone, self._segments = self._segments[:count], self._segments[count:]
            self._log_start_offset = self._segments[0].base_offset
            for segment in gone:
                self._files.forget(segment)
                remove_segment(self._files, segment)
        except StorageFault as fault:
            self.fail(fault)
            raise
        return count

    def _expired(self, now_ms: int, greatest: Callable[[Segment], int]) -> int:
        settings, sealed = self.settings, self._segments[:-1]
        if self.fault is not None or not settings.deletes:
            return 0
        excess = self.size - settings.retention_bytes if settings.retention_bytes >= 0 else -1
        count = 0
        for segment in sealed:
            excess -= segment.size
            timestamp = greatest(segment)
            too_old = settings.retention_ms >= 0 and 0 <= timestamp < now_ms - settings.retention_ms
            if excess < 0 and not too_old:
                break
            count += 1
        return count


def _nothing() -> None:
    """Stand in for the store until it has taken the log over."""


def stamp_append_time(batch: memoryview, now_ms: int) -> None:
    """Make a batch carry the broker's time: attribute bit 3, greatest timestamp, and the CRC over both."""
    batch[_ATTRIBUTES_LOW_POSITION] |= LOG_APPEND_TIME
    _MAX_TIMESTAMP.pack_into(batch, _MAX_TIMESTAMP_POSITION, now_ms)
    batch[CRC_POSITION:CHECKED_POSITION] = crc32c(batch[CHECKED_POSITION:]).to_bytes(4, "big")


def whole_batches(data: Bytes) -> list[memoryview]:
    """The batches of a read that are whole, each as a view."""
    view, position, found = memoryview(data), 0, []
    while len(view) - position > 61:
        size = read_header(view, position).size
        if position + size > len(view):
            break
        found.append(view[position : position + size])
        position += size
    return found


def make_segment_file(files: OpenFiles, segment: Segment) -> None:
    """Make an empty segment whose name is durable; after an OSError no file of that name is left."""
    try:
        file = files.fs.create(segment.path)
        files.fs.sync_directory(segment.directory)
    except OSError:
        if files.fs.exists(segment.path):
            files.fs.remove(segment.path)
        raise
    files.keep_file(segment, file)


def remove_segment(files: OpenFiles, segment: Segment) -> None:
    """Remove a segment's files, durably; one that is gone already is no error. StorageFault."""
    for suffix in ("index", "timeindex", "log"):
        path = f"{segment.directory}/{segment.name(suffix)}"
        try:
            files.fs.remove(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise fault_of(error, path, 0) from error
    try:
        files.fs.sync_directory(segment.directory)
    except OSError as error:
        raise fault_of(error, segment.directory, 0) from error
