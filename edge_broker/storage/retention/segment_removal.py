"""Taking segments away from the front of a log.

| step of a removal | a crash after it |
|---|---|
| losses are synced in the ledger | the removal was not begun; the next one writes the same ids again |
| `removed-offsets` is replaced and synced: the log starts later | the next start removes the files that it names |
| the files are removed, the directory is synced | done |

Contains: the order, and what retention takes. Does not contain: what is taken for lack of space
(eviction_plan.py), clocks. Source: Kafka's UnifiedLog.deleteOldSegments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from edge_broker.storage.files.atomic_files import fault_of
from edge_broker.storage.log.removed_offsets import (
    FILE,
    FOLLOWED,
    FORWARDED,
    RemovedRange,
    oldest_that_stays,
    with_removed,
    write_removed,
)
from edge_broker.storage.metadata.loss_records import CAUSES, Loss
from edge_broker.storage.segment.batch_scan import BrokenBatchError, batches_in
from edge_broker.storage.segment.segment import Segment
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.protocol.record_batch import BatchHeader
    from edge_broker.storage.files.data_age import Now
    from edge_broker.storage.files.filesystem import FileSystem
    from edge_broker.storage.log.partition_log import PartitionLog
    from edge_broker.storage.segment.segment_summary import Summary

DAMAGED = "damaged"
KEPT = ""  # the cause of what does not go
OFFSET_MAX = (1 << 63) - 1
_KEPT_SUFFIX = ".snapshot"  # speaks of the producers from that offset on, not of the segment's bytes


class RemovalRange(NamedTuple):
    """Offsets [first_offset, end_offset) of one segment that are to go for one cause."""

    cause: str
    first_offset: int
    end_offset: int


class SegmentRemoval(NamedTuple):
    """A segment at the front that is to go; its parts cover it from the log's start to the next segment's offset."""

    segment: Segment
    parts: Sequence[RemovalRange]


class RemovalCount:
    """The counts of one part; `broken`: the walk ended early, the offsets after it count as records."""

    __slots__ = ("broken", "bytes", "control", "first_timestamp", "last_timestamp", "part", "records")

    def __init__(self, part: RemovalRange) -> None:
        self.part = part
        self.records = self.control = self.bytes = 0
        self.first_timestamp = self.last_timestamp = -1
        self.broken = False

    def take(self, header: BatchHeader, count: int, size: int) -> None:
        """Count `count` records of a batch and `size` of its bytes."""
        self.bytes += size
        if header.is_control:
            self.control += count
            return
        self.records += count
        if self.first_timestamp < 0 or header.first_timestamp < self.first_timestamp:
            self.first_timestamp = header.first_timestamp
        self.last_timestamp = max(self.last_timestamp, header.max_timestamp)

    def entry(self) -> RemovedRange:
        """The account's line; offsets without a record were compacted away."""
        cause, first, end = self.part
        compacted = 0 if self.broken else end - first - self.records - self.control
        return RemovedRange(
            cause, first, end, end - first - self.control - compacted, self.control, compacted, self.bytes
        )

    def loss(self, log: PartitionLog) -> Loss:
        """The ledger's record of it."""
        cause = next(known for known in CAUSES if known == self.part.cause)
        records, size = (None, None) if self.broken else (self.records, self.bytes)
        return Loss(
            cause,
            log.topic,
            log.topic_id,
            log.partition,
            self.part.first_offset,
            self.part.end_offset,
            records,
            size,
            self.first_timestamp if self.first_timestamp >= 0 else None,
            self.last_timestamp if self.last_timestamp >= 0 else None,
        )


@runs_in()
def count_parts(segment: Segment, parts: Sequence[RemovalRange]) -> list[RemovalCount]:
    """Count records and bytes of each part by the headers of the segment's batches. OSError.

    Parts need not begin with the segment, nor end with it: what is before the first was counted when it went. Of a
    batch that two parts share, each gets its offsets' records and the later one the bytes; one that compaction has
    thinned out is counted in the later part as far as its offsets reach.
    """
    counted = [RemovalCount(part) for part in parts]
    for one in counted:
        one.broken = one.part.cause == DAMAGED
    try:
        for _, header in batches_in(segment.file, 0, segment.size, corrupt_ranges=segment.corrupt_ranges):
            if header.base_offset >= parts[-1].end_offset:
                break
            _count_batch(counted, header)
    except BrokenBatchError:
        for one in counted:
            one.broken = True
    return counted


def _count_batch(counted: Sequence[RemovalCount], header: BatchHeader) -> None:
    left, size = header.records_count, header.size
    for one in reversed(counted):
        width = min(header.next_offset, one.part.end_offset) - max(header.base_offset, one.part.first_offset)
        if width > 0:
            one.take(header, min(left, width), size)
            left, size = left - min(left, width), 0


def around_corrupt_ranges(going: SegmentRemoval) -> SegmentRemoval:
    """The parts without the segment's corrupt ranges: what was damaged is in the ledger as that already."""
    parts = list(going.parts)
    for corrupt_range in going.segment.corrupt_ranges:
        for part in list(parts):
            first, end = (
                max(part.first_offset, corrupt_range.first_offset),
                min(part.end_offset, corrupt_range.end_offset),
            )
            if first >= end:
                continue
            pieces = (
                RemovalRange(part.cause, part.first_offset, first),
                RemovalRange(DAMAGED, first, end),
                RemovalRange(part.cause, end, part.end_offset),
            )
            at = parts.index(part)
            parts[at : at + 1] = [piece for piece in pieces if piece.end_offset > piece.first_offset]
    return SegmentRemoval(going.segment, parts)


def _count(log: PartitionLog, going: SegmentRemoval, now: Now) -> list[RemovalCount]:
    """As its summary says when the segment goes for one cause, else from its batches. OSError."""
    segment, parts = going = around_corrupt_ranges(going)
    if not parts:
        return []  # it lies before the log's start, and was counted when that moved
    if len(parts) > 1 or parts[0].cause == DAMAGED or parts[0].first_offset > segment.base_offset:
        return count_parts(segment, parts)
    counted, summary = RemovalCount(parts[0]), log.summary(segment, now)
    counted.records, counted.control, counted.bytes = summary.records, summary.control, summary.bytes
    counted.first_timestamp, counted.last_timestamp = summary.first_timestamp, summary.max_timestamp
    return [counted]


@runs_in()
def remove_front(
    log: PartitionLog, going: Sequence[SegmentRemoval], now: Now, partly: SegmentRemoval | None = None
) -> list[RemovalCount]:
    """Take the oldest segments away, in the order of the table above; what went.

    Of the one after them parts may go `partly`: its file stays, and the log starts inside it.
    StorageFault or Refusal of the ledger: nothing is removed. StorageFault of the account: nothing is removed.
    StorageFault afterwards: the log starts later, the next start removes what is left of the files. None takes the
    partition offline.
    """
    if not going and partly is None:
        return []
    try:
        counted = [counted for one in going for counted in _count(log, one, now)]
        counted += _count_front(partly) if partly is not None else []
    except OSError as error:
        raise fault_of(error, log.segments[0].path, 0) from error
    losses = [one.loss(log) for one in counted if one.part.cause in CAUSES and one.part.cause != DAMAGED]
    if losses:
        log.ledger.write(losses)
    entries = with_removed(log.removed, [one.entry() for one in counted])
    try:
        write_removed(log.files.fs, log.directory, entries, log.spare)
    except OSError as error:
        raise fault_of(error, f"{log.directory}/{FILE}", 0) from error
    gone = log.drop_front(len(going), entries)
    for segment in gone:
        log.files.retire(segment)
    remove_segments(log.files.fs, log.directory, {segment.base_offset for segment in gone})
    return counted


def _count_front(partly: SegmentRemoval) -> list[RemovalCount]:
    """As what is left will be counted when it goes: of a batch that both share it gets the bytes. OSError."""
    segment, parts = around_corrupt_ranges(partly)
    rest = RemovalRange(KEPT, parts[-1].end_offset, OFFSET_MAX)
    return [one for one in count_parts(segment, [*parts, rest]) if one.part is not rest]


@runs_in()
def delete_records(log: PartitionLog, offset: int, now: Now, passed_offset: int = OFFSET_MAX) -> int:
    """Delete everything before an offset that may be shown, or is the end of that; where the log starts.

    Records at or above `passed_offset` are a loss. Raises as `remove_front`; a sync that fails takes it offline.
    """
    return _remove_before(log, offset, now, passed_offset, "deleted", "deleted_by_request")


@runs_in("files")
def evict(log: PartitionLog, offset: int, now: Now, passed_offset: int) -> list[RemovalCount]:
    """Evict everything before an offset that is shown, whole segments or not; what went. As `delete_records`."""
    return _take_before(log, offset, now, passed_offset, "passed", "evicted")


@runs_in("files")
def follow_start(log: PartitionLog, offset: int, now: Now) -> int:
    """Remove everything before an offset, as the leader of this replica has done; where the log starts.

    The leader has recorded what of it was lost. As `delete_records`; a log that is held stays as it is.
    """
    if log.is_held:
        return log.log_start_offset
    return _remove_before(log, offset, now, OFFSET_MAX, FOLLOWED, FOLLOWED)


@runs_in("files")
def remove_forwarded(log: PartitionLog, offset: int, now: Now) -> int:
    """Remove from a ledger's journal everything before an offset, which the cluster has; where the log starts.

    As `delete_records`.
    """
    return _remove_before(log, offset, now, OFFSET_MAX, FORWARDED, FORWARDED)


def _remove_before(log: PartitionLog, offset: int, now: Now, passed_offset: int, passed: str, unpassed: str) -> int:
    _take_before(log, offset, now, passed_offset, passed, unpassed)
    return log.log_start_offset


def _take_before(
    log: PartitionLog, offset: int, now: Now, passed_offset: int, passed: str, unpassed: str
) -> list[RemovalCount]:
    if log.fault is not None:
        raise log.fault.without_frames()  # another topic may have its directory now
    going: list[SegmentRemoval] = []
    partly = None
    segments = log.segments
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        first = max(segment.base_offset, log.log_start_offset)
        if first >= offset:
            break
        end = following.base_offset if following is not None else OFFSET_MAX
        parts = split_at(first, min(end, offset), passed_offset, passed, unpassed)
        if end <= offset:
            going.append(SegmentRemoval(segment, parts))
        else:
            partly = SegmentRemoval(segment, parts)
    try:
        if offset > log.synced_end.offset:  # a topic left to the kernel: a power cut must not take what the account has
            segments[-1].datasync()
    except OSError as error:
        fault = fault_of(error, segments[-1].path, segments[-1].size)
        log.fail(fault)
        raise fault from error
    return remove_front(log, going, now, partly)


@runs_in()
def delete_expired(log: PartitionLog, now: Now, passed_offset: int = OFFSET_MAX, *, leads: bool = True) -> int:
    """Delete whole sealed segments by retention.ms and retention.bytes; how many.

    A replica that does not lead only lets go of files that lie before its log's start. Not every required group of the
    topic has read a record at or above `passed_offset`: it is a loss, and the ledger has it before it
    goes. Raises as `remove_front`.
    """
    causes = expired_causes(log, now, lambda segment: log.summary(segment, now), leads=leads)
    segments = log.segments
    going = [
        SegmentRemoval(
            segment,
            split_at(
                max(segment.base_offset, log.log_start_offset),
                following.base_offset,
                passed_offset,
                cause,
                "expired_unpassed",
            ),
        )
        for segment, following, cause in zip(segments, segments[1:], causes, strict=False)
    ]
    remove_front(log, going, now)
    return len(going)


def split_at(first_offset: int, end_offset: int, passed_offset: int, passed: str, unpassed: str) -> list[RemovalRange]:
    """A segment's offsets in up to two parts: what every named group has passed, and the rest."""
    border = min(max(passed_offset, first_offset), end_offset)
    parts = [RemovalRange(passed, first_offset, border), RemovalRange(unpassed, border, end_offset)]
    return [part for part in parts if part.end_offset > part.first_offset]


def active_expired(log: PartitionLog, now: Now, *, leads: bool = True) -> bool:
    """True when the segment that is written to may go like those before it, once it is closed. Safe on the loop.

    Else a topic without further writes would keep its last segment for ever, as would one whose records were
    all deleted by request. Source: Kafka's UnifiedLog.deleteSegments, which rolls before it deletes the active one.
    """
    state = log.state
    active, end = state.active, log.log_end_offset
    causes = expired_causes(log, now, lambda segment: segment.stored_summary, leads=leads)
    open_to_it = log.settings.deletes and log.fault is None and not log.is_held
    if not open_to_it or not active.size or len(causes) < len(state.sealed_segments):
        return False
    summary = active.tally.summary(active.base_offset, end, active.size, active.max_timestamp)
    return bool(_cause(log, end, summary, now, leads=leads, excess=log.settings.retention_bytes == 0))


def expired_causes(
    log: PartitionLog, now: Now, summary_of: Callable[[Segment], Summary | None], *, leads: bool = True
) -> list[str]:
    """Why each of the oldest sealed segments is past its retention; ends with the first that is not."""
    settings, sealed = log.settings, log.state.sealed_segments
    if log.fault is not None or log.is_held or not settings.deletes:
        return []
    excess = log.size - settings.retention_bytes if settings.retention_bytes >= 0 else -1
    causes = []
    for segment, following in zip(sealed, log.segments[1:], strict=False):
        excess -= segment.size
        cause = _cause(log, following.base_offset, summary_of(segment), now, leads=leads, excess=excess >= 0)
        if not cause:
            break
        causes.append(cause)
    return causes


def _cause(log: PartitionLog, end_offset: int, summary: Summary | None, now: Now, *, leads: bool, excess: bool) -> str:
    """Return why a segment is past its retention; empty: it is not. Invisible records stay, as in Kafka."""
    if end_offset <= log.log_start_offset:
        return "deleted"  # all of it, while it was still the one that is appended to
    if not leads or end_offset > log.high_watermark:
        return ""
    if log.settings.retention_ms >= 0 and _too_old(summary, now, log.settings.retention_ms):
        return "retention"
    return "retention_bytes" if excess else ""


def _too_old(summary: Summary | None, now: Now, retention_ms: int) -> bool:
    """True also when it is not known yet."""
    return summary is None or summary.is_expired(now, retention_ms)


def remove_segments(fs: FileSystem, directory: str, bases: set[int]) -> None:
    """Remove the files of segments by their first offsets, durably; one that is gone is no error. StorageFault."""
    try:
        _remove_files(fs, directory, [name for name in fs.names(directory) if _base_of(name) in bases])
    except OSError as error:
        raise fault_of(error, directory, 0) from error


def _base_of(name: str) -> int:
    """The first offset of the segment that a file belongs to; -1 for one that may stay without it."""
    return int(name[:20]) if name[:20].isdigit() and not name.endswith(_KEPT_SUFFIX) else -1


def _remove_files(fs: FileSystem, directory: str, names: Iterable[str]) -> None:
    for name in sorted(names, key=lambda name: name.endswith(".log")):
        try:
            fs.remove(f"{directory}/{name}")
        except FileNotFoundError:
            continue
    fs.sync_directory(directory)


def finish_removal(fs: FileSystem, directory: str, names: list[str], start_offset: int) -> list[str]:
    """Remove the segments that the account says are gone and a crash left; the names that stay. OSError. [start]"""
    stay = oldest_that_stays((_base_of(name) for name in names if name.endswith(".log")), start_offset)
    gone = [name for name in names if 0 <= _base_of(name) < stay]
    if gone or stay < start_offset:
        fs.sync_directory(directory)  # a killed process may leave an account that no disk has
    if not gone:
        return names
    _remove_files(fs, directory, gone)
    return [name for name in names if name not in gone]
