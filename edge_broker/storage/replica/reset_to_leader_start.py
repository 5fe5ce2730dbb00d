"""Reset a replica to its leader's log start, as the leader removed all of its records while it was away.

A replica without a record that starts after its leader's records is reset to 0, as one with an empty card.

| call | where | |
|---|---|---|
| `truncating.hold` | loop | as for a truncation |
| `truncating.enter` | `files` | the ledger has what the leader may never have had, synced, if there is such a thing |
| `start_anew` | `files` | the log is empty, and goes on at that offset |
| `replica_truncation.resume_as` | loop | the log is what was made of it |

| step of `start_anew` | a crash after it |
|---|---|
| `removed-offsets` says that all before the offset is gone, synced | the next start begins there |
| the segment that begins there is made, durably | the same |
| the other segments, and what is known of producers and epochs, go, durably | done |

| step of `start_anew` at 0 | a crash after it |
|---|---|
| the segments go, durably, which hold nothing | the next start makes the log that was there, without a record |
| LogStore.make_anew: its position and directory go, a new one is made | it is missing: the cluster makes a new one |

The removed records are no loss: the leader has removed them, by retention or on request, and has them in its account.

The leader's log may start amid a batch, as after DeleteRecords. It sends that batch whole, so the first one of an
empty log may begin before where the log starts. A segment is named by where its first batch begins: another one takes
the place of the empty one. The log starts where it did, amid the batch, and what lies before that is not read.

A log that a truncation has emptied may still have what was removed from its front, in the segment that it starts amid.

| step of `begin_amid` | a crash after it |
|---|---|
| such a segment goes as by `start_anew`, an empty one takes its place | the log is empty |
| the segment is made, durably, with the batch, synced | the next start removes it: the empty one is after it |
| the empty segment goes, durably | the log has the batch |

Does not contain: when it is due (partition.py, replica.begins_before). Source: Kafka's
ReplicaFetcherThread.fetchOffsetAndTruncate, UnifiedLog.truncateFullyAndStartAt; for a batch that the start lies in,
Partition.appendRecordsToFollowerOrFutureReplica, UnexpectedAppendOffsetException.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_broker.errors import ErrorCode, Refusal
from edge_broker.storage.files.atomic_files import out_of_space
from edge_broker.storage.log.leader_epochs import NONE, LeaderEpochs
from edge_broker.storage.log.log_roller import make_segment_file
from edge_broker.storage.log.log_state import LogEnd
from edge_broker.storage.log.log_writer import write_batch
from edge_broker.storage.log.removed_offsets import BY_LEADER, RemovedRange, with_removed, write_removed
from edge_broker.storage.replica.replica_log import begins_before
from edge_broker.storage.replica.replica_truncation import remake
from edge_broker.storage.retention.segment_removal import (
    RemovalRange,
    SegmentRemoval,
    around_corrupt_ranges,
    count_parts,
    remove_segments,
)
from edge_broker.storage.segment.segment import Segment
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edge_broker.storage.files.data_age import Now
    from edge_broker.storage.log.partition_log import PartitionLog
    from edge_broker.storage.log_store import LogStore


@runs_in("files")
def start_anew(store: LogStore, log: PartitionLog, start_offset: int, now: Now) -> PartitionLog:
    """Empty a log that is held, durably; it goes on at an offset, not before its end, or at 0 where it has no record.
    Return what it is to `resume_as`.

    StorageFault takes it offline; the next start goes on with what was decided.
    """

    def decide() -> None:
        if start_offset == 0 < log.log_end_offset:
            _make_anew(store, log)
            return
        assert start_offset >= log.log_end_offset, f"{log!r} cannot be reset to {start_offset}"
        _decide(log, start_offset)
        _carry_out(log, start_offset)

    def forget(fresh: PartitionLog) -> None:
        fresh.state.epochs, fresh.state.leader_epoch = LeaderEpochs(), NONE  # of batches that no replica has
        fresh.roller.keep_epochs()

    return remake(store, log, now, decide, forget)


@runs_in("files")
def begin_amid(store: LogStore, log: PartitionLog, batch: memoryview, now: Now) -> PartitionLog:
    """Give an empty log that is held its first batch, amid which it starts (`begins_before`), synced; what it is to
    `resume_as`.

    Refusal: there is no space, and the log is as it was. StorageFault takes it offline; the next start finds the log
    empty, or with the batch.
    """

    def decide() -> None:
        header = begins_before(batch, log.state)
        assert header is not None, f"{log!r} does not start amid this batch"
        assert header.size == len(batch), f"{len(batch)} bytes are more than a batch of {header.size}"
        if log.state.active.size or len(log.segments) > 1:
            _carry_out(log, log.log_end_offset)
        segment = Segment(log.files, log.directory, header.base_offset, 0, log.settings.index_interval_bytes)
        _write_first(log, segment, batch)
        for one in log.segments:
            log.files.retire(one)
        remove_segments(log.files.fs, log.directory, {one.base_offset for one in log.segments})
        log.state.cut(LogEnd(segment, len(batch), header.next_offset, (-1, -1)))

    def remember(fresh: PartitionLog) -> None:
        fresh.state.active.born_age_ms = now.age_ms

    return remake(store, log, now, decide, remember)


def _write_first(log: PartitionLog, segment: Segment, batch: memoryview) -> None:
    fs = log.files.fs
    try:
        if fs.exists(segment.path):
            fs.remove(segment.path)  # of an attempt that failed
        make_segment_file(log.files, segment)
        write_batch(segment.file, segment.path, batch, 0)
        segment.datasync()
        segment.size = len(batch)
    except (OSError, Refusal) as error:
        log.files.retire(segment)
        if isinstance(error, OSError) and out_of_space(error):
            raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"{error}: {segment.path}; nothing was written") from error
        raise


def _make_anew(store: LogStore, log: PartitionLog) -> None:
    start_offset, end_offset = log.log_start_offset, log.log_end_offset
    assert start_offset == end_offset or log.state.epochs.at(end_offset - 1) == NONE, f"{log!r} has records"
    topic = store.kept_topic_of(log)
    for one in log.segments:
        log.files.retire(one)
    remove_segments(log.files.fs, log.directory, {one.base_offset for one in log.segments})
    fresh = store.make_anew(topic, log)
    _begin_in(log, fresh.state.active, 0)
    log.removed = ()


def _decide(log: PartitionLog, start_offset: int) -> None:
    end_offset = log.log_end_offset
    never_held = RemovedRange(BY_LEADER, end_offset, start_offset, start_offset - end_offset, 0, 0, 0)
    entries = with_removed(log.removed, [*_going(log), never_held])
    write_removed(log.files.fs, log.directory, entries, log.spare)
    log.removed = entries


def _going(log: PartitionLog) -> Iterator[RemovedRange]:
    """Yield the present contents, segment by segment. OSError."""
    segments = log.segments
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        first = max(segment.base_offset, log.log_start_offset)
        end = following.base_offset if following is not None else log.log_end_offset
        if first < end:
            whole = SegmentRemoval(segment, [RemovalRange(BY_LEADER, first, end)])
            for counted in count_parts(*around_corrupt_ranges(whole)):
                yield counted.entry()


def _begin_in(log: PartitionLog, segment: Segment, start_offset: int) -> None:
    """Let memory know of the empty segment that is all of a log now."""
    state = log.state
    with state.layout:
        state.segments, state.log_start_offset = (segment,), start_offset
    state.cut(LogEnd(segment, 0, start_offset, (-1, -1)))
    state.show_nothing()


def _carry_out(log: PartitionLog, start_offset: int) -> None:
    fs = log.files.fs
    segment = Segment(log.files, log.directory, start_offset, 0, log.settings.index_interval_bytes)
    others = [one for one in log.segments if one.base_offset != start_offset]
    if not fs.exists(segment.path):
        make_segment_file(log.files, segment)
    _begin_in(log, segment, start_offset)
    for one in others:
        log.files.retire(one)
    for name in fs.names(log.directory):
        if name.endswith(".snapshot"):
            fs.remove(f"{log.directory}/{name}")
    remove_segments(fs, log.directory, {one.base_offset for one in others})
