"""Truncates a replica: records what goes first, then truncates the log (truncation_file.py has the order).

| call | where | |
|---|---|---|
| `hold` | loop | no append, roll or flush is in progress; none begins before the end |
| `enter` | `files` | the ledger has what goes, by epoch and offset, synced |
| `truncate` | `files` | the log is cut, durably, and opened again: with producers, epochs and indexes of what is left |
| `resume_as` | loop | the log is what was made of it |

A log is cut between batches. Where the offset lies within one, as where a leader's log starts amid it, the whole batch
goes: what the leader has is fetched again. Also a log that ends at the offset is worth it: epochs that began there,
and have no record, go.

An offset at the log's own start leaves an empty log, whose next offset is that one.

Nothing else takes segments away or replaces them meanwhile, neither retention nor a full disk nor compaction: the log
that is made knows the files as they were when it was opened.

A flush under way is waited for, though it could confirm nothing of the log that is made (the segment that it speaks of
is none of that one's): the truncation may take away the very file that it has to open, and its failure would take the
log offline.

Does not contain: where a log diverges (follower_state.py). Source: KIP-101, KIP-279.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.errors import StorageFault
from edge_broker.storage.files.atomic_files import fault_of
from edge_broker.storage.log.log_state import LogEnd, LogState
from edge_broker.storage.metadata.loss_records import Loss
from edge_broker.storage.recovery.recovery_checkpoint import Position
from edge_broker.storage.recovery.truncation_file import FILE, Truncation, encode_truncation, ranges_before
from edge_broker.storage.replica.replica_log import Replica
from edge_broker.storage.segment.batch_scan import BrokenBatchError, batches_in
from edge_broker.storage.segment.segment import DamageFound, Segment
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.protocol.record_batch import BatchHeader
    from edge_broker.storage.files.data_age import Now
    from edge_broker.storage.log.partition_log import PartitionLog
    from edge_broker.storage.log_store import LogStore
    from edge_broker.storage.metadata.loss_records import Cause

_base_offset = attrgetter("base_offset")


class RecordedTruncation(NamedTuple):
    """A truncation whose losses are in the ledger; it holds for the log as it was then."""

    state: LogState
    log_end_offset: int
    end: Truncation


class Going:
    """The records to remove of one leader epoch."""

    def __init__(self, epoch: int, first_offset: int) -> None:
        self.epoch, self.first_offset, self.end_offset = epoch, first_offset, first_offset
        self.records = self.bytes = 0
        self.timestamps: list[int] = []

    def take(self, header: BatchHeader) -> None:
        """Count a batch."""
        self.end_offset = header.next_offset
        self.bytes += header.size
        if not header.is_control:
            self.records += header.records_count
            self.timestamps += [header.first_timestamp, header.max_timestamp]

    def loss(self, log: PartitionLog, cause: Cause) -> Loss:
        """The ledger's record of it."""
        where = (cause, log.topic, log.topic_id, log.partition, self.first_offset, self.end_offset)
        first, last = (min(self.timestamps), max(self.timestamps)) if self.timestamps else (None, None)
        return Loss(*where, self.records, self.bytes, first, last, leader_epoch=self.epoch)


def hold(log: PartitionLog) -> bool:
    """Let nothing be appended or flushed until `resume_as` or `release_log`; False: one of these is in progress.

    The caller that gets this asks again once the log has moved. Loop.
    """
    writer = log.writer
    if writer.busy or (writer.flush is not None and log.fault is None):
        return False
    writer.rolling = writer.held = True
    return True


def release_log(log: PartitionLog) -> None:
    """The log stays as it is, as of one that is elected meanwhile; what is unsynced has to be asked for again. Loop."""
    log.writer.rolling = log.writer.held = False


@runs_in("files")
def enter(log: PartitionLog, end_offset: int, cause: Cause = "truncated") -> RecordedTruncation:
    """Write down what a truncation to an offset takes, synced when this returns; the same may be written again.

    StorageFault or Refusal of the ledger, StorageFault, DamageFound of the log: nothing may be truncated.
    """
    state = log.state
    if state.fault is not None:
        raise state.fault.without_frames()
    assert state.log_start_offset <= end_offset <= state.log_end_offset, f"{log!r} cannot be truncated to {end_offset}"
    try:
        end = cut_point(state, end_offset)
        losses = [] if is_repeated(log, cause) else [going.loss(log, cause) for going in _going(state, end)]
    except OSError as error:
        raise fault_of(error, log.directory, 0) from error
    if losses:
        log.ledger.write(losses)
    return RecordedTruncation(state, state.log_end_offset, end)


def is_repeated(log: PartitionLog, cause: Cause) -> bool:
    """Whether a truncation takes only unacknowledged records that come again: journals and clients still have them.

    Were it recorded, a full journal would keep the ledger's own replica from following.
    """
    return log.topic == LEDGER_TOPIC and cause == "truncated"


@runs_in("files")
def enter_unknown(log: PartitionLog, leader_epoch: int, cause: Cause = "unclean_election") -> None:
    """Record that others have, or had, records after this log's end; synced when this returns.

    `leader_epoch` is the one of the state without a leader. StorageFault, Refusal of the ledger.
    """
    where = (cause, log.topic, log.topic_id, log.partition, log.log_end_offset)
    log.ledger.write([Loss(*where, None, None, None, leader_epoch=leader_epoch)])


def cut_point(state: LogState, end_offset: int) -> Truncation:
    """Where a log is to be cut to end at an offset, or before it where a batch lies around it. OSError, StorageFault,
    DamageFound.
    """
    segments = state.segments
    at = max(bisect_right(segments, end_offset, key=_base_offset) - 1, 0)
    segment = segments[at]
    position = segment.locate(end_offset, segment.size, blocking=True)
    for corrupt_range in segment.corrupt_ranges:
        if corrupt_range.first_offset >= end_offset:
            position = min(position, corrupt_range.position)
    try:
        walk = batches_in(segment.file, position, segment.size, corrupt_ranges=segment.corrupt_ranges)
        header = next((one for _, one in walk), None)
    except BrokenBatchError as broken:
        raise DamageFound(segment, broken.position, broken.reason) from broken
    if header is None or header.base_offset >= end_offset:
        return Truncation(end_offset, segment.base_offset, position)
    if header.base_offset >= state.log_start_offset:
        return Truncation(header.base_offset, segment.base_offset, position)
    start_offset = state.log_start_offset  # amid the first batch that is held: a segment of its own begins there
    return Truncation(start_offset, start_offset, 0)


def _going(state: LogState, end: Truncation) -> Iterator[Going]:
    """Yield the records after the end, epoch by epoch; corruption is in the ledger as that. OSError."""
    going: Going | None = None
    for header in _batches_behind(state, end):
        if going is None or going.epoch != header.leader_epoch:
            if going is not None:
                yield going
            going = Going(header.leader_epoch, max(header.base_offset, state.log_start_offset))
        going.take(header)
    if going is not None:
        yield going


def _batches_behind(state: LogState, end: Truncation) -> Iterator[BatchHeader]:
    segments = state.segments
    for segment, following in zip(segments, (*segments[1:], None), strict=True):
        if following is not None and following.base_offset <= end.end_offset:
            continue
        begin = end.position if segment.base_offset == end.segment_base else 0
        try:
            for _, header in batches_in(segment.file, begin, segment.size, corrupt_ranges=segment.corrupt_ranges):
                if header.next_offset > end.end_offset:
                    yield header
        except BrokenBatchError as broken:
            raise DamageFound(segment, broken.position, broken.reason) from broken


@runs_in("files")
def truncate(store: LogStore, log: PartitionLog, entered: RecordedTruncation, now: Now) -> PartitionLog:
    """Cut a log that is held, durable when this returns; what it is to `resume_as`, which shows what was shown of it.

    StorageFault takes it offline; resume_failed_log.py goes on with what was decided.
    """

    def decide() -> None:
        assert (log.state, log.log_end_offset) == entered[:2], f"{log!r} is another one than was entered"
        _decide(store, log, entered.end)

    return remake(store, log, now, decide, showing(log))


def showing(log: PartitionLog) -> Callable[[PartitionLog], None]:
    """Has what is made of a log show what is shown of it now, as far as that is there."""
    high_watermark = log.high_watermark

    def show(fresh: PartitionLog) -> None:
        Replica(fresh).show_exactly(max(min(high_watermark, fresh.log_end_offset), fresh.log_start_offset))

    return show


@runs_in("files")
def cut_damage(store: LogStore, log: PartitionLog, now: Now) -> PartitionLog:
    """Cut a log that is held where the first thing lies that it lacks, durable; what it is to `resume_as`.

    For a replica that is in no in-sync set, and whose leader has all of it. Where the damage went from the front since
    that was decided, it ends where it did. StorageFault as of `truncate`.
    """
    end = Truncation(log.log_end_offset, log.state.active.base_offset, log.state.active.size)
    if log.has_missing:
        base, lacked = min(log.remaining_missing, key=lambda place: place[1].first_offset)
        end = Truncation(lacked.first_offset, base, lacked.position)
    return remake(store, log, now, lambda: _decide(store, log, end), lambda fresh: None)


def remake(
    store: LogStore,
    log: PartitionLog,
    now: Now,
    decide: Callable[[], None],
    finish: Callable[[PartitionLog], None],
) -> PartitionLog:
    """Have it decided, durably, what becomes of a log that is held; it is opened again then, and `finish`ed.

    A failure takes the log offline: StorageFault.
    """
    if log.fault is not None:
        raise log.fault.without_frames()
    assert log.writer.held, f"{log!r} takes appends meanwhile"
    try:
        decide()
        fresh = reopen_truncated(store, log, now)
        if fresh.fault is None:
            finish(fresh)
    except StorageFault as known:
        log.fail(known)
        raise
    except (OSError, DamageFound) as error:
        fault = _fault(error, log.directory)
        log.fail(fault)
        raise fault from error
    if fresh.fault is not None:
        log.fail(fresh.fault)
        raise fresh.fault.without_frames()
    return fresh


def _fault(error: OSError | DamageFound, directory: str) -> StorageFault:
    if isinstance(error, OSError):
        return fault_of(error, directory, 0)
    return StorageFault(error.segment.path, error.position, error.reason)


def _decide(store: LogStore, log: PartitionLog, end: Truncation) -> None:
    """Sync what stays, decide the truncation, and set it in memory, for a retry if this fails."""
    state = log.state
    if state.synced.offset < end.end_offset:
        state.active.datasync()
    store.spare.replace(log.directory, FILE, encode_truncation(end))
    segment = Segment(log.files, log.directory, end.segment_base, end.position, log.settings.index_interval_bytes)
    kept = next((one for one in state.segments if one.base_offset == end.segment_base), None)
    segment.corrupt_ranges = ranges_before(kept.corrupt_ranges, end.end_offset) if kept is not None else ()
    state.cut(LogEnd(segment, end.position, end.end_offset, (-1, -1)))


def reopen_truncated(store: LogStore, log: PartitionLog, now: Now) -> PartitionLog:
    """Return the log after a decided truncation; `fault` is set if it cannot be opened. OSError."""
    segment, position, offset, _ = log.synced_end
    topic = store.kept_topic_of(log)
    end = Position(log.log_start_offset, segment.base_offset, position, offset)
    return store.reopen(topic, log, end, now, [])


def resume_as(log: PartitionLog, fresh: PartitionLog) -> None:
    """Be what `truncate` has made; appends go on. Loop."""
    log.go_on_as(fresh)
    assert not log.writer.rolling, "what was made of the log is not held"
