"""A partition's log as one replica of several; the member reports who leads, and what others have.

| who | does | then |
|---|---|---|
| a follower | `append` of what it fetched | RollDue: as any writer; a sync follows; if `epoch_due`, `keep_epoch` |
| a follower on a slow disk | `begin_append`; the Writing's `run` in `writer`; `end_append` | the same |
| a new leader | `begin_epoch` on the loop, `keep_epoch` in `disk`, or `keep_epochs` | it serves once that is done |
| a leader | appends as a single node does, then `batches_appended` | a sync follows |
| a leader, asked by a follower | `read` up to the log's end, whatever may be shown | |
| both | `show` what replicas have | |
| a worker, which may wait for the disk | `show_exactly` | |

A follower appends exactly its leader's bytes: offsets, leader epochs, timestamps, each byte. It is checked before it
is written:

| a fetched batch | |
|---|---|
| is cut off, is none, does not match its CRC | CORRUPT_MESSAGE |
| does not begin where the log ends; or before, where a leader compacts and batches may be missing | the same |
| begins before an empty log's start, and reaches over it | the log begins amid it (starting_anew.begin_amid) |
| has a lower leader epoch than the record before it | the same: the logs were not matched |

Nothing of a fetch is written where one of its batches is refused.

The high watermark is the end of some batch. The log keeps the ends of appended batches that are not visible yet, so
a new high watermark needs no read of the log. If they are many, every second one goes. Then the visible end is before
the high watermark until the next kept end is reached.

Does not contain: who leads, what is shown when, truncation (replica_truncation.py). Source: Kafka's
ReplicaFetcherThread, UnifiedLog.appendAsFollower; KIP-101.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING

from edge_broker.errors import ErrorCode, ProtocolViolation, Refusal, StorageFault
from edge_broker.protocol.crc import crc32c
from edge_broker.protocol.record_batch import CHECKED_POSITION, BatchHeader, read_header
from edge_broker.storage.files.atomic_files import fault_of
from edge_broker.storage.log.leader_epochs import NONE, LeaderEpochs
from edge_broker.storage.log.log_reader import LogReader
from edge_broker.storage.log.log_state import LogEnd
from edge_broker.storage.metadata.topic_record import LEDGERS
from edge_broker.storage.segment.batch_scan import batches_in
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_broker.storage.files.batched_replace import BatchedFiles
    from edge_broker.storage.files.data_age import Now
    from edge_broker.storage.files.filesystem import Bytes
    from edge_broker.storage.log.log_state import LogState
    from edge_broker.storage.log.log_writer import Writing
    from edge_broker.storage.log.partition_log import PartitionLog
    from edge_broker.storage.segment.segment import Segment

ENDS_KEPT = 256
_base_offset, _offset = attrgetter("base_offset"), attrgetter("offset")


class Replica:
    """One replica; the log that it speaks of may go on as another one (resume_failed_log.py, replica_truncation.py)."""

    __slots__ = ("_ends", "full", "led_from", "log", "pauses")

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.full = False  # its disk takes nothing more, as far as this replica goes
        self.pauses = False  # what was fetched was refused a moment ago: nothing is fetched for a while
        self.led_from: int | None = None  # where it began to lead, if it has fetched nothing since
        self._ends: list[LogEnd] = []

    # what the cluster reads (cluster/state/replica_log_view.py)

    @property
    def log_start_offset(self) -> int:
        """First offset still held."""
        return self.log.state.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """End of what is written."""
        return self.log.state.log_end_offset

    @property
    def synced_offset(self) -> int:
        """End of what the disk has confirmed."""
        return self.log.state.synced.offset

    @property
    def acknowledged_offset(self) -> int:
        """End of what counts as replicated: what is synced, or written where the topic's answers wait for no sync."""
        state = self.log.state
        return state.synced.offset if state.settings.sync_awaited else state.log_end_offset

    def may_lack(self, epoch: int) -> bool:
        """Whether a power loss may have taken what it had acknowledged under a registration."""
        return epoch <= self.log.cut_epoch and not self.log.settings.sync_awaited

    @property
    def unconfirmed_epoch(self) -> int:
        """As ReplicaLog; a ledger has none, as who lost something tells that again."""
        state = self.log.state
        led = self.led_from is not None and max(state.synced.offset, self.led_from) < state.log_end_offset
        return state.leader_epoch if led and self.log.topic not in LEDGERS else NONE

    @property
    def epochs(self) -> LeaderEpochs:
        """Where each leader epoch began."""
        return self.log.state.epochs

    @property
    def online(self) -> bool:
        """Whether it can be read and written."""
        return self.log.state.fault is None

    @property
    def has_missing(self) -> bool:
        """Whether it lacks what others may have, and nothing says yet that they have not."""
        return self.log.has_missing

    @property
    def missing(self) -> bool:
        """Whether nothing was left of it at the start: it is offline until a new one is made."""
        return self.log.missing

    def lost_until(self, offset: int) -> int:
        """Where what was recorded as lost from an offset on ends, at most the log's end; the offset itself, where
        nothing was. Records before the log's start are not part of it.
        """
        state = self.log.state
        if self.log.has_missing or not state.log_start_offset <= offset < state.log_end_offset:
            return offset
        at = max(bisect_right(state.segments, offset, key=_base_offset) - 1, 0)
        return min(state.segments[at].next_held(offset), state.log_end_offset)

    # following

    def append(self, records: memoryview, now: Now, *, opens: bool = True) -> int:
        """Append whole batches as they came; how many bytes of them: the next segment takes the rest, so go on.

        Refusal (a batch is not what is due, or there is no space: nothing is written), RollDue, WriteUnderWay,
        StorageFault; unless it `opens` the file where that is not open, WouldBlockError: a worker opens it first.
        """
        headers = due_batches(records, self.log.state)
        size = self.log.writer.append_as_it_is(records, headers, now, opens=opens)
        self._state_replaced()
        return size

    def begin_append(self, records: memoryview, now: Now) -> Writing:
        """As `append`, but the write is left to the worker `writer`; `end_append` must follow its `run`. Loop.

        `len(writing.records)` bytes of them: what the active segment takes. Nothing is copied: `records` must not
        change until then. Raises as `append`.
        """
        headers = due_batches(records, self.log.state)
        return self.log.writer.begin_write_as_it_is(records, headers, now)

    def end_append(self, writing: Writing) -> int:
        """Take in what the worker has written, unless `end_write` has; how many bytes. Loop.

        Refusal (no space: nothing is written), StorageFault (it is offline).
        """
        if not writing.done:
            self.log.writer.end_write()
        writing.result()
        self._state_replaced()
        return len(writing.records)

    def _state_replaced(self) -> None:
        state, self.led_from = self.log.state, None
        state.leader_epoch = max(state.leader_epoch, state.epochs.latest)
        self.batches_appended()

    @property
    def busy(self) -> bool:
        """Whether a write, a roll or a truncation is in progress, or it pauses."""
        return self.log.writer.busy or self.pauses

    @property
    def epoch_due(self) -> bool:
        """Whether `keep_epoch` should follow what was appended, so that the checkpoint says what the batches say.

        Until then a start goes by the batches.
        """
        return self.log.roller.epochs_wrong

    # leading

    def begin_epoch(self, epoch: int) -> None:
        """Lead from the log's end on; `keep_epoch` must follow before anybody is answered. Loop."""
        state = self.log.state
        state.epochs.note(epoch, state.log_end_offset)
        state.leader_epoch, self.led_from = epoch, state.log_end_offset

    @runs_in("disk")
    def keep_epoch(self, together: BatchedFiles | None = None) -> None:
        """Have on the disk where epochs begin; no roll may run meanwhile. StorageFault takes the log offline.

        With others `together` that is done once its `finish` says so.
        """
        self.log.roller.keep_epochs(together)

    def batches_appended(self) -> None:
        """Batches were appended, or may have been. Loop."""
        state, ends = self.log.state, self._ends
        end = state.end()
        while ends and (ends[-1].offset > end.offset or not self._holds(ends[-1])):
            ends.pop()  # of what was truncated
        if not ends or ends[-1].offset < end.offset:
            if len(ends) >= ENDS_KEPT:
                del ends[::2]
            ends.append(end)

    def _holds(self, end: LogEnd) -> bool:
        state = self.log.state
        return end.segment is state.active or end.segment in state.segments

    def read(self, offset: int, bytes_max: int, *, blocking: bool) -> Bytes | None:
        """As LogReader.read, up to the end of what is written: a follower has it before anybody else may see it."""
        return _WrittenReader(self.log.state).read(offset, bytes_max, blocking=blocking)

    # what may be shown

    def show(self, high_watermark: int) -> None:
        """Show records before the high watermark, up to the last known end before it. Loop.

        It never goes back: a truncation does that.
        """
        state, ends = self.log.state, self._ends
        count = bisect_right(ends, high_watermark, key=_offset)
        last = ends[count - 1] if count else None
        del ends[:count]
        known = [one for one in (last, state.synced, state.end()) if one is not None and one.offset <= high_watermark]
        best = max(known, key=_offset, default=state.shown)
        if best.offset > state.shown.offset and self._holds(best):  # else it was truncated since
            state.set_visible_end(best, best.offset)

    @runs_in()
    def show_exactly(self, high_watermark: int) -> None:
        """As `show`, to the very offset, which lies at a batch's end and within the log; it may go back.

        StorageFault; DamageFound where the log cannot be read.
        """
        state = self.log.state
        if state.shown.offset != high_watermark:
            state.set_visible_end(find_end(state, high_watermark), high_watermark)


def as_fault(log: PartitionLog, error: Exception) -> StorageFault:
    """Return a failure as the log's fault; a bug, too, leaves the contents of its files unknown."""
    return error if isinstance(error, StorageFault) else StorageFault(log.directory, 0, repr(error))


@runs_in("disk")
def keep_epochs(replicas: Sequence[Replica], together: BatchedFiles | None) -> None:
    """As `keep_epoch`, of many; a log of which that fails, be it by a bug, is offline, and costs no other."""
    for replica in replicas:
        log = replica.log
        try:
            replica.keep_epoch(together)
        except Exception as error:  # noqa: BLE001 - after any error the file's contents are unknown
            log.fail(as_fault(log, error))
            if together is not None:
                together.drop(log.directory)
    failed = together.finish() if together is not None else {}
    for replica in replicas:
        log = replica.log
        if log.directory in failed:
            log.fail(fault_of(failed[log.directory], log.directory, 0))


class _WrittenReader(LogReader):
    """Reads what is written, as a reader reads what may be shown."""

    def _end_offset(self) -> int:
        return self.state.log_end_offset

    def _limit(self, segment: Segment) -> int:
        return segment.size


def find_end(state: LogState, offset: int) -> LogEnd:
    """The end of the batch before an offset, from the log's bytes. StorageFault, DamageFound, OSError."""
    if offset <= state.log_start_offset:
        return LogEnd(state.segments[0], 0, state.log_start_offset, (-1, -1))
    at = max(bisect_right(state.segments, offset - 1, key=_base_offset) - 1, 0)
    segment, greatest = state.segments[at], (-1, -1)
    position = segment.locate(offset, segment.size, blocking=True)
    if 0 <= segment.max_timestamp_offset < offset:
        return LogEnd(segment, position, offset, (segment.max_timestamp, segment.max_timestamp_offset))
    for _, header in batches_in(segment.file, 0, position, corrupt_ranges=segment.corrupt_ranges):
        if header.max_timestamp > greatest[0]:
            greatest = (header.max_timestamp, header.last_offset)
    return LogEnd(segment, position, offset, greatest)


def begins_before(records: memoryview, state: LogState) -> BatchHeader | None:
    """The header of a first batch amid which an empty log starts, as its leader's does, or None. Refusal."""
    due = state.log_end_offset
    if state.log_start_offset < due:
        return None
    header = _whole(records, 0)
    return header if 0 <= header.base_offset < due < header.next_offset else None


def due_batches(records: memoryview, state: LogState) -> list[BatchHeader]:
    """The headers of batches that go on where a log ends; Refusal."""
    found: list[BatchHeader] = []
    position, due, gaps = 0, state.log_end_offset, state.settings.may_have_gaps
    epoch = state.epochs.at(due - 1) if due > state.log_start_offset else NONE
    while position < len(records):
        header = _whole(records, position)
        if header.base_offset < due or (header.base_offset > due and not gaps):
            raise _append_refusal(f"a batch has offset {header.base_offset} where {due} was due")
        if header.leader_epoch < epoch:
            raise _append_refusal(
                f"the batch of offset {due} has leader epoch {header.leader_epoch}, after one of {epoch}"
            )
        found.append(header)
        position, due, epoch = position + header.size, header.next_offset, header.leader_epoch
    return found


def _whole(records: memoryview, position: int) -> BatchHeader:
    try:
        header = read_header(records, position)
    except ProtocolViolation as error:
        raise _append_refusal(str(error)) from error
    end = position + header.size
    if end > len(records):
        raise _append_refusal(f"a batch of {header.size} bytes is cut off after {len(records) - position}")
    if crc32c(records[position + CHECKED_POSITION : end]) != header.crc:
        raise _append_refusal(f"the batch of offset {header.base_offset} does not match its CRC")
    return header


def _append_refusal(reason: str) -> Refusal:
    return Refusal(ErrorCode.CORRUPT_MESSAGE, f"A leader sent what cannot be appended: {reason}.")
