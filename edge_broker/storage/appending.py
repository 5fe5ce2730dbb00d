"""How batches get into a log: checked and given offsets on the loop, written there or by the worker `writer`.

| step | on a quick disk | on one that makes writers wait |
|---|---|---|
| admit, assign offsets | loop | loop |
| write | loop: into the page cache, which takes microseconds | `writer`, from a copy of the batches |
| take in: ends, index, producers | loop | loop, with `end_write` |

While a write is under way the log takes no other append, so their order holds; what is under way is neither shown nor
synced. A write that fails leaves nothing behind: without space it is refused, else the partition goes offline.

Lives here: the writing half of a PartitionLog, up to its flushes. Must never come in: closing segments
(log.py), which disk is quick (write_throttle.py), clocks, threads. Source: Kafka's UnifiedLog.append; KIP-98.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple
from weakref import ref

from edge_broker.errors import ErrorCode, Refusal, StorageFault
from edge_broker.protocol.crc import crc32c
from edge_broker.protocol.record_batch import (
    CHECKED_POSITION,
    CRC_POSITION,
    LOG_APPEND_TIME,
    SIZE_OVERHEAD,
    BatchHeader,
    assign_offsets,
)
from edge_broker.storage.age import AGE_UNKNOWN, Now
from edge_broker.storage.group_commit import Flush
from edge_broker.storage.reading import LogState, Mark, ReadableLog, Synced
from edge_broker.storage.segment import OFFSETS_MAX, Segment
from edge_broker.storage.state_files import OUT_OF_SPACE, fault_of, write_all

if TYPE_CHECKING:
    from edge_broker.storage.filesystem import File
    from edge_broker.storage.producer_memory import ProducerMemory
    from edge_broker.storage.producers import Producer

EXPIRY_INTERVAL_MS = 60_000
MARKS_KEPT = 16
_MAX_TIMESTAMP = Struct(">q")
_MAX_TIMESTAMP_POSITION = 35
_ATTRIBUTES_LOW_POSITION = 22


class Busy(Exception):
    """Not yet: ask again when the log moves, with `writing` if it is set: that write is yours."""

    writing: Writing | None = None


class RollDue(Busy):
    """Nothing was written: the segment must be closed first."""


class WriteUnderWay(Busy):
    """A write is in the hands of a worker."""

    def __init__(self, writing: Writing | None) -> None:
        super().__init__()
        self.writing = writing


class Appended(NamedTuple):
    """Where a batch lies; `append_time_ms` is -1 unless the broker stamped its time; `duplicate`: written before."""

    base_offset: int
    end_offset: int
    append_time_ms: int
    duplicate: bool = False


class Writing:
    """A batch on its way into the file, in a worker's hands."""

    __slots__ = ("appended", "done", "error", "file", "header", "news", "now", "path", "position", "records")

    def __init__(
        self,
        file: File,
        segment: Segment,
        records: memoryview,
        header: BatchHeader,
        news: Producer | None,
        appended: Appended,
        now: Now,
    ) -> None:
        self.file = file
        self.path = segment.path
        self.position = segment.size
        self.records = records
        self.header = header
        self.news = news
        self.appended = appended
        self.now = now
        self.error: Refusal | StorageFault | None = None
        self.done = False

    def run(self) -> None:
        """Write, or keep in `error` why not. [worker]"""
        try:
            write_batch(self.file, self.path, self.records, self.position)
        except (Refusal, StorageFault) as error:
            self.error = error.kept()

    def result(self) -> Appended:
        """What append would have returned or raised; WriteUnderWay until then."""
        if not self.done:
            raise WriteUnderWay(self)
        if self.error is not None:
            raise self.error.kept()
        return self.appended


class WritableLog(ReadableLog):
    """The active segment of one partition and what is written to it."""

    def __init__(self, state: LogState) -> None:
        super().__init__(state)
        self.rolling = False
        self.writing: Writing | None = None
        self._producers = state.producers
        self.producer_memory: ProducerMemory | None = None  # the store's
        self._expire_at_age_ms = AGE_UNKNOWN
        self._index_due = 0
        self._stay_bytes = 0
        self._roll_refusal: Refusal | None = None
        self.marked = False  # on the disk it says that answers may have come before their sync (in_use.py)
        self._retreated = False  # a refused write was cut off again, and no sync has told the disk

    @property
    def busy(self) -> bool:
        """True while a roll or a write is under way; appends wait for its end."""
        return self.rolling or self.writing is not None

    @property
    def unsynced_bytes(self) -> int:
        """Bytes of the active segment that the disk has not confirmed."""
        synced = self._synced
        return self._active.size - (synced.position if synced.segment is self._active else 0)

    def fail(self, fault: StorageFault) -> None:
        """Take the partition offline; the first fault stays."""
        self.fault = self.fault or fault.kept()

    def append(self, records: memoryview, header: BatchHeader, now: Now) -> Appended:
        """Stamp offsets and leader epoch into a batch in place and write it with one call.

        `records` must be writable and hold exactly the batch of this header, checked. Raises Refusal (the producer's
        fault, or no space left: nothing is written), RollDue, WriteUnderWay, StorageFault (the partition is offline).
        """
        size = len(records)
        news = self._admit(size, header, now)
        if isinstance(news, Appended):
            return news
        appended = self._assign(records, header, now)
        active = self._active
        try:
            write_batch(self._pin(), active.path, records, active.size)
        except StorageFault as fault:
            self.fail(fault)
            raise
        except Refusal:
            self._retreated = True
            raise
        self._take_in(size, header, news, appended, now)
        return appended

    def begin_write(self, records: memoryview, header: BatchHeader, now: Now) -> Appended | Writing:
        """As `append`, but the write is left to a worker; `end_write` must follow its `run`, on the loop.

        `records` must not change until then. What was written before is answered at once.
        """
        news = self._admit(len(records), header, now)
        if isinstance(news, Appended):
            return news
        appended = self._assign(records, header, now)
        self.writing = Writing(self._pin(), self._active, records, header, news, appended, now)
        return self.writing

    def end_write(self) -> None:
        """Take in what the worker has written; its Writing has the result now."""
        writing, self.writing = self.writing, None
        assert writing is not None, "there is no write to end"
        writing.done = True
        if isinstance(writing.error, StorageFault):
            self.fail(writing.error)
        self._retreated = self._retreated or writing.error is not None
        writing.error = writing.error or self.fault
        if writing.error is None:
            self._active.pinned = writing.file  # a sync that ended meanwhile may have let go of it
            self._take_in(len(writing.records), writing.header, writing.news, writing.appended, writing.now)

    def _admit(self, size: int, header: BatchHeader, now: Now) -> Appended | Producer | None:
        """What to keep of its producer once this is written, or where it was written before; raises as `append`."""
        if self.fault is not None:
            raise self.fault.kept()
        if self.writing is not None:
            raise WriteUnderWay(None)
        if self._roll_refusal is not None:
            raise self._refusal()
        news = None
        if header.producer_id >= 0:
            if now.age_ms >= self._expire_at_age_ms:
                self._expire_at_age_ms = now.age_ms + EXPIRY_INTERVAL_MS
                self._producers.expire(now, self.settings.producer_id_expiration_ms)
            again, news = self._producers.admit(header, self.log_end_offset, now.age_ms)
            if again is not None:
                return Appended(again.base_offset, again.last_offset + 1, -1, duplicate=True)
        if self.rolling or self._roll_is_due(size, header, now):
            self.rolling = True
            raise RollDue
        return news

    def _pin(self) -> File:
        """The active segment's file, held until its bytes are synced; StorageFault."""
        active = self._active
        if active.pinned is None:
            try:
                active.pinned = active.file
            except OSError as error:
                fault = fault_of(error, active.path, active.size)
                self.fail(fault)
                raise fault from error
        return active.pinned

    def _refusal(self) -> Refusal:
        refusal, self._roll_refusal = self._roll_refusal, None
        assert refusal is not None
        return refusal

    def _roll_is_due(self, size: int, header: BatchHeader, now: Now) -> bool:
        active, settings = self._active, self.settings
        if not active.size:
            return False
        size += active.size
        if self.log_end_offset - active.base_offset + header.last_offset_delta >= OFFSETS_MAX:
            return True
        if size <= self._stay_bytes:
            return False
        if size > settings.segment_bytes:
            return True
        elapsed_ms = now.age_ms - active.born_age_ms  # at least what elapsed_ms() says
        return elapsed_ms > settings.roll_ms_min and now.elapsed_ms(active.born_age_ms) > settings.roll_ms

    def _assign(self, records: memoryview, header: BatchHeader, now: Now) -> Appended:
        assert len(records) == header.batch_length + SIZE_OVERHEAD, "append was given another batch than was checked"
        append_time_ms = -1
        if self.settings.log_append_time:
            header.max_timestamp = append_time_ms = now.wall_ms
            stamp_append_time(records, append_time_ms)
        offset = self.log_end_offset
        assign_offsets(records, offset, self.leader_epoch)
        return Appended(offset, offset + header.last_offset_delta + 1, append_time_ms)

    def _take_in(
        self,
        size: int,
        header: BatchHeader,
        news: Producer | None,
        appended: Appended,
        now: Now,
    ) -> None:
        active = self._active
        position, base_offset, end_offset = active.size, appended.base_offset, appended.end_offset
        if position == 0:
            active.born_age_ms = now.age_ms
        active.tally.add(header, now)
        if header.max_timestamp > active.max_timestamp:
            active.max_timestamp = header.max_timestamp
            active.max_timestamp_offset = end_offset - 1
        if position >= self._index_due:
            self._index_due = active.note(base_offset, end_offset - 1, position, self._index_due)
        if self.leader_epoch > self._epochs.latest:
            self._epochs.note(self.leader_epoch, base_offset)
        active.size = position + size
        if news is not None:
            grown = self._producers.keep(header.producer_id, news)
            if grown and self.producer_memory is not None:
                self.producer_memory.add(grown)
        self.log_end_offset = end_offset

    def begin_flush(self) -> Flush | None:
        """A flush of what is written and not yet confirmed; None when there is nothing."""
        if self.fault is not None or self._synced.offset == self.log_end_offset:
            return None
        active, begin = self._active, self._synced
        end = Synced(active, active.size, self.log_end_offset)
        return Flush(begin.position if begin.segment is active else 0, end, self._time_now())

    def finish_flush(self, flush: Flush) -> None:
        """Show what the flush confirmed."""
        if self.rolling or self.fault is not None:
            return  # a roll syncs and shows everything itself, in the worker
        if flush.end.offset > self._synced.offset:
            self._synced = flush.end
            self._shown_time = flush.shown_time
            self._marks[flush.end.offset] = Mark(ref(flush.end.segment), flush.end.position)
            if len(self._marks) > MARKS_KEPT:
                del self._marks[next(iter(self._marks))]
            if flush.end.position == flush.end.segment.size:
                flush.end.segment.pinned = None


def write_batch(file: File, path: str, records: memoryview, position: int) -> None:
    """Write all, or leave nothing where later batches will lie: Refusal without space, else StorageFault."""
    try:
        written = file.write(records, position)
        if written != len(records):
            write_all(file, records[written:], position + written)
    except OSError as error:
        raise _taken_back(file, path, position, error) from error


def _taken_back(file: File, path: str, position: int, error: OSError) -> Refusal | StorageFault:
    """Cut off what was half written; only a clean retreat keeps the partition online."""
    fault = fault_of(error, path, position)
    if error.errno not in OUT_OF_SPACE:
        return fault
    try:
        file.truncate(position)
    except OSError as second:
        return fault_of(second, path, position)
    return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"{fault.reason}: {path}; nothing was written, free space")


def stamp_append_time(batch: memoryview, now_ms: int) -> None:
    """Make a batch carry the broker's time: attribute bit 3, greatest timestamp, and the CRC over both."""
    batch[_ATTRIBUTES_LOW_POSITION] |= LOG_APPEND_TIME
    _MAX_TIMESTAMP.pack_into(batch, _MAX_TIMESTAMP_POSITION, now_ms)
    batch[CRC_POSITION:CHECKED_POSITION] = crc32c(batch[CHECKED_POSITION:]).to_bytes(4, "big")
