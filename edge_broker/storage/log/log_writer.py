"""How batches get into a log: checked and given offsets on the loop, written there or by the worker `writer`.

| step | on a quick disk | on one that makes writers wait |
|---|---|---|
| admit, assign offsets | loop | loop |
| write | loop: into the page cache, which takes microseconds | `writer`, from a copy of the batches |
| take in: ends, index, producers | loop | loop, with `end_write` |

While a write is in progress the log accepts no other append, so their order holds; that write is neither visible nor
synced. A write that fails leaves no bytes: without space it is rejected, else the partition goes offline.

While a log is held it is being truncated (replica_truncation.py): it takes no append, and no flush begins, as what a
flush covers may be taken away, file and all.

Contains: LogWriter, up to its flushes. Does not contain: closing segments (log_roller.py), which disk is quick
(files/write_throttle.py), clocks, threads. Source: Kafka's UnifiedLog.append; KIP-98.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

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
from edge_broker.storage.files.atomic_files import OUT_OF_SPACE, fault_of, write_all
from edge_broker.storage.files.data_age import AGE_UNKNOWN, Now
from edge_broker.storage.log.group_commit import Flush
from edge_broker.storage.log.log_state import LogState
from edge_broker.storage.segment.segment import OFFSETS_MAX, Segment, WouldBlockError
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_broker.storage.files.filesystem import File
    from edge_broker.storage.log.producer_state import Producer, Producers
    from edge_broker.storage.log.producer_state_limit import ProducerMemory

EXPIRY_INTERVAL_MS = 60_000
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


class AppendResult(NamedTuple):
    """Where a batch lies; `append_time_ms` is -1 unless the broker stamped its time; `duplicate`: written before."""

    base_offset: int
    end_offset: int
    append_time_ms: int
    duplicate: bool = False


class Writing:
    """Batches on their way into the file, in a worker's hands: one that was produced, or those that were fetched."""

    __slots__ = (
        "appended",
        "done",
        "error",
        "fetched",
        "file",
        "headers",
        "news",
        "now",
        "path",
        "position",
        "records",
        "segment",
    )

    def __init__(
        self,
        segment: Segment,
        records: memoryview,
        headers: Sequence[BatchHeader],
        appended: AppendResult,
        now: Now,
        news: Producer | None = None,
        *,
        fetched: bool = False,
    ) -> None:
        self.segment = segment
        self.file: File | None = None  # until it runs
        self.path = segment.path
        self.position = segment.size
        self.records = records
        self.headers = headers
        self.appended = appended
        self.now = now
        self.news = news
        self.fetched = fetched  # of a leader, so taken in as they are
        self.error: Refusal | StorageFault | None = None
        self.done = False

    @runs_in()
    def run(self) -> None:
        """Write, or keep in `error` why not."""
        try:
            self.file = self.segment.file
            write_batch(self.file, self.path, self.records, self.position)
        except (Refusal, StorageFault) as error:
            self.error = error.without_frames()
        except OSError as error:
            self.error = fault_of(error, self.path, self.position)

    def result(self) -> AppendResult:
        """Return or raise what append would have; WriteUnderWay until then."""
        if not self.done:
            raise WriteUnderWay(self)
        if self.error is not None:
            raise self.error.without_frames()
        return self.appended


class LogWriter:
    """The active segment of one partition and what is written to it.

    While `rolling` it belongs to the worker that rolls (log_roller.py), and takes no append.
    """

    def __init__(self, state: LogState, producers: Producers) -> None:
        self.state = state
        self.producers = producers
        self.producer_memory: ProducerMemory | None = None  # the store's
        self.rolling = False
        self.held = False  # for a truncation; it is `rolling` then, too
        self.flush: Flush | None = None  # in progress
        self.writing: Writing | None = None
        self.retreated = False  # a refused write was cut off again, and no sync has told the disk
        self.out_of_space = False  # the file system had no space for a write, since this was last cleared
        self.stay_bytes = 0  # up to here the segment is written on, as no next one could be made
        self.roll_refusal: Refusal | None = None
        self._expire_at_age_ms = AGE_UNKNOWN
        self._index_due = 0

    @runs_in()
    def begin_segment(self, segment: Segment) -> None:
        """Append to a new segment from now on."""
        self._index_due = self.stay_bytes = 0
        self.state.begin(segment)

    @property
    def busy(self) -> bool:
        """True while a roll or a write is in progress; appends wait for its end."""
        return self.rolling or self.writing is not None

    @property
    def unsynced_bytes(self) -> int:
        """Bytes of the active segment that the disk has not confirmed."""
        state = self.state
        synced, active = state.synced, state.active
        return active.size - (synced.position if synced.segment is active else 0)

    def begin_roll(self) -> bool:
        """Have the active segment closed before it is full; False when it is empty, or being closed already. Loop."""
        if self.busy or self.state.fault is not None or not self.state.active.size:
            return False
        self.rolling = True
        return True

    def end_roll(self) -> None:
        """Let appends continue after a roll, once those that wait for it come first."""
        self.rolling = False

    def append(self, records: memoryview, header: BatchHeader, now: Now, *, opens: bool = True) -> AppendResult:
        """Stamp offsets and leader epoch into a batch in place and write it with one call.

        `records` must be writable and hold exactly the batch of this header, checked. Raises Refusal (the producer's
        fault, or no space left: nothing is written), RollDue, WriteUnderWay, StorageFault (the partition is offline);
        unless it `opens` the file where that is not open, WouldBlockError: leave it to `begin_write`.
        """
        size = len(records)
        news = self._admit(size, header, now)
        if isinstance(news, AppendResult):
            return news
        appended = self._assign(records, header, now)
        self._write(records, opens=opens)
        self._take_in(size, header, news, appended, self.state.leader_epoch, now)
        return appended

    def begin_write(self, records: memoryview, header: BatchHeader, now: Now) -> AppendResult | Writing:
        """As `append`, but the write is left to a worker; `end_write` must follow its `run`, on the loop.

        `records` must not change until then. A duplicate that was written before is answered at once.
        """
        news = self._admit(len(records), header, now)
        if isinstance(news, AppendResult):
            return news
        appended = self._assign(records, header, now)
        self.writing = Writing(self.state.active, records, (header,), appended, now, news)
        return self.writing

    def end_write(self) -> None:
        """Take in what the worker has written; its Writing has the result now."""
        writing, self.writing = self.writing, None
        assert writing is not None, "there is no write to end"
        writing.done = True
        if isinstance(writing.error, StorageFault):
            self.state.fail(writing.error)
        self.retreated = self.retreated or writing.error is not None
        self.out_of_space = self.out_of_space or isinstance(writing.error, Refusal)
        writing.error = writing.error or self.state.fault
        if writing.error is None:
            self.state.active.pinned = writing.file  # a sync that ended meanwhile may have let go of it
            if writing.fetched:
                self._take_in_fetched(writing.headers, writing.now)
            else:
                size, epoch = len(writing.records), self.state.leader_epoch
                self._take_in(size, writing.headers[0], writing.news, writing.appended, epoch, writing.now)

    def append_as_it_is(
        self, records: memoryview, headers: Sequence[BatchHeader], now: Now, *, opens: bool = True
    ) -> int:
        """Write batches of the leader with one call; how many of their bytes, as the segment may not take all.

        They were checked to go on where the log ends (replica_log.py): offsets, epochs and times stay, and producers
        are taken for granted. Raises as `append`, RollDue where not even the first fits.
        """
        taken, size = self._take_fitting(headers, now)
        self._write(records[:size], opens=opens)
        self._take_in_fetched(taken, now)
        return size

    def begin_write_as_it_is(self, records: memoryview, headers: Sequence[BatchHeader], now: Now) -> Writing:
        """As `append_as_it_is`, but the write is left to a worker; `end_write` must follow its `run`, on the loop.

        It has as many bytes as the segment takes; `records` must not change until then.
        """
        taken, size = self._take_fitting(headers, now)
        where = AppendResult(taken[0].base_offset, taken[-1].next_offset, -1)
        self.writing = Writing(self.state.active, records[:size], taken, where, now, fetched=True)
        return self.writing

    def _take_in_fetched(self, headers: Sequence[BatchHeader], now: Now) -> None:
        for header in headers:
            if header.base_offset != self.state.log_end_offset:
                self.state.active.gaps_allowed = True  # compaction took batches of the leader's
            news = self.producers.state_after(header, now.age_ms)
            where = AppendResult(header.base_offset, header.next_offset, -1)
            self._take_in(header.size, header, news, where, header.leader_epoch, now)

    def _take_fitting(self, headers: Sequence[BatchHeader], now: Now) -> tuple[Sequence[BatchHeader], int]:
        """Those at the front that can be written now, at least one, and their bytes; raises as `append_as_it_is`."""
        self._may_append()
        taken, size = ((), 0) if self.rolling else self._fitting(headers, now)
        if not taken:
            self.rolling = True
            raise RollDue
        return taken, size

    def _fitting(self, headers: Sequence[BatchHeader], now: Now) -> tuple[Sequence[BatchHeader], int]:
        """Those at the front that the active segment takes, and their bytes."""
        active, size = self.state.active, 0
        for count, header in enumerate(headers):
            bytes_max = max(self.state.settings.segment_bytes, self.stay_bytes)
            over = count > 0 and active.size + size + header.size > bytes_max
            far = active.size + count > 0 and header.last_offset - active.base_offset >= OFFSETS_MAX
            if over or far or (count == 0 and self._roll_is_due(header.size, header, now)):
                return headers[:count], size
            size += header.size
        return headers, size

    def _write(self, records: memoryview, *, opens: bool) -> None:
        active = self.state.active
        try:
            write_batch(self._pin(opens), active.path, records, active.size)
        except StorageFault as fault:
            self.state.fail(fault)
            raise
        except Refusal:
            self.retreated = self.out_of_space = True
            raise

    def _may_append(self) -> None:
        """Raise where nothing can be appended now, as `append`, but for a roll: what was written before needs none."""
        if self.state.fault is not None:
            raise self.state.fault.without_frames()
        if self.writing is not None:
            raise WriteUnderWay(None)
        if self.roll_refusal is not None:
            raise self._refusal()

    def _admit(self, size: int, header: BatchHeader, now: Now) -> AppendResult | Producer | None:
        """Return the producer's new entry once this is written, or its earlier offset; raises as `append`."""
        self._may_append()
        state, news = self.state, None
        if header.producer_id >= 0:
            if now.age_ms >= self._expire_at_age_ms:
                self._expire_at_age_ms = now.age_ms + EXPIRY_INTERVAL_MS
                self.producers.expire(now, state.settings.producer_id_expiration_ms)
            first_epoch = len(state.epochs.starts) < 2
            again, news = self.producers.admit(header, state.log_end_offset, now.age_ms, first_epoch=first_epoch)
            if again is not None:
                return AppendResult(again.base_offset, again.last_offset + 1, -1, duplicate=True)
        if self.rolling or self._roll_is_due(size, header, now):
            self.rolling = True
            raise RollDue
        return news

    def _pin(self, opens: bool) -> File:
        """The active segment's file, held until its bytes are synced; StorageFault, WouldBlockError."""
        active = self.state.active
        if active.pinned is None:
            try:
                active.pinned = active.file if opens else active.open_file
            except OSError as error:
                fault = fault_of(error, active.path, active.size)
                self.state.fail(fault)
                raise fault from error
            if active.pinned is None:
                raise WouldBlockError
        return active.pinned

    def _refusal(self) -> Refusal:
        refusal, self.roll_refusal = self.roll_refusal, None
        assert refusal is not None
        return refusal

    def _roll_is_due(self, size: int, header: BatchHeader, now: Now) -> bool:
        state = self.state
        active, settings = state.active, state.settings
        if not active.size:
            return False
        size += active.size
        if state.log_end_offset - active.base_offset + header.last_offset_delta >= OFFSETS_MAX:
            return True
        if size <= self.stay_bytes:
            return False
        if size > settings.segment_bytes:
            return True
        elapsed_ms = now.age_ms - active.born_age_ms  # at least what elapsed_ms() says
        return elapsed_ms > settings.roll_ms_min and now.elapsed_ms(active.born_age_ms) > settings.roll_ms

    def _assign(self, records: memoryview, header: BatchHeader, now: Now) -> AppendResult:
        assert len(records) == header.batch_length + SIZE_OVERHEAD, "append was given another batch than was checked"
        state, append_time_ms = self.state, -1
        if state.settings.log_append_time:
            header.max_timestamp = append_time_ms = now.wall_ms
            stamp_append_time(records, append_time_ms)
        offset = state.log_end_offset
        assign_offsets(records, offset, state.leader_epoch)
        return AppendResult(offset, offset + header.last_offset_delta + 1, append_time_ms)

    def _take_in(
        self,
        size: int,
        header: BatchHeader,
        news: Producer | None,
        appended: AppendResult,
        epoch: int,
        now: Now,
    ) -> None:
        state = self.state
        active = state.active
        position, base_offset, end_offset = active.size, appended.base_offset, appended.end_offset
        if position == 0:
            active.born_age_ms = now.age_ms
        active.tally.add(header, now)
        if header.max_timestamp > active.max_timestamp:
            active.max_timestamp = header.max_timestamp
            active.max_timestamp_offset = end_offset - 1
        if position >= self._index_due:
            self._index_due = active.note(base_offset, end_offset - 1, position, self._index_due)
        if epoch != state.epochs.latest:
            state.epochs.note(epoch, base_offset, first=state.log_end_offset == state.log_start_offset)
        active.size = position + size
        if news is not None:
            grown = self.producers.keep(header.producer_id, news)
            if grown and self.producer_memory is not None:
                self.producer_memory.add(grown)
        state.log_end_offset = end_offset

    def begin_flush(self) -> Flush | None:
        """A flush of what is written and not yet confirmed; None when there is nothing."""
        state = self.state
        begin = state.synced
        if state.fault is not None or begin.offset == state.log_end_offset or self.held:
            return None
        end = state.end()
        self.flush = flush = Flush(begin.position if begin.segment is end.segment else 0, end)
        return flush

    def finish_flush(self, flush: Flush) -> None:
        """Take in what the flush confirmed; one that failed takes the log offline in its place."""
        state, end, self.flush = self.state, flush.end, None
        if self.rolling or state.fault is not None:
            return  # a roll syncs everything itself, in the worker
        if end.offset > state.synced.offset and end.segment is state.active:  # else it was truncated since
            state.confirm(end)
            if end.position == end.segment.size:
                end.segment.pinned = None


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
