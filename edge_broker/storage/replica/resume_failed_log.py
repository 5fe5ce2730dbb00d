"""A partition whose disk failed a sync or a write, brought back without asking that disk the same thing again.

| step | a crash after it |
|---|---|
| the store's leader epoch is raised above the partition's, synced | the next start raises it again |
| what is lost is synced in the ledger, `sync_failed` | a start keeps what is whole: the ledger may name too much |
| the active segment is cut to what the disk has confirmed, synced | a start finds just that |
| the partition is opened as after an unclean stop, the next segment begins | the same |

A replica whose truncation had failed goes on with that instead (recovery/truncation_file.py).

A failed fsync leaves unknown which of its pages are on the disk, and the next one succeeds without them. So nothing of
what it covered is kept: consumers never saw it, as the high watermark is the synced end. Only of a topic that is left
to the kernel they may have: there, what the disk really has is read back, and whole batches from the synced end on are
kept. The page in which the confirmed bytes end was part of the failed sync as well, so it is written again.

Does not contain: when to try again (network/dispatch/partition_reopener.py).
Source: fsync(2), Errors; PostgreSQL's fsyncgate; KIP-101.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edge_broker.storage.files.atomic_files import fault_of, write_all
from edge_broker.storage.metadata.loss_records import Loss
from edge_broker.storage.metadata.topic_record import LEDGERS
from edge_broker.storage.recovery.open_partition import PAGE_BYTES, TRUNCATION
from edge_broker.storage.recovery.recovery_checkpoint import Position
from edge_broker.storage.segment.batch_scan import BrokenBatchError, batches_in
from edge_broker.storage.segment.segment import Segment
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.storage.files.data_age import Now
    from edge_broker.storage.files.filesystem import File
    from edge_broker.storage.log.partition_log import PartitionLog
    from edge_broker.storage.log_store import LogStore
    from edge_broker.storage.topic import Topic


class BroughtOnline(NamedTuple):
    """The partition as it goes on, sentences about it, and the ledger's own loss, which is still to be recorded."""

    log: PartitionLog
    notes: list[str]
    loss: Loss | None


@runs_in()
def bring_online(store: LogStore, log: PartitionLog, now: Now) -> BroughtOnline | None:
    """Make a log of what is left of an offline one; None when its topic is gone.

    Nothing else may run on `log`. StorageFault, Refusal: the disk or the ledger still refuses, try again later.
    """
    topic = store.topic_of(log)
    if topic is None:
        return None
    segment, position, offset, _ = log.synced_end
    try:
        if log.files.fs.exists(f"{log.directory}/{TRUNCATION}"):
            return BroughtOnline(_reopen_truncated(store, topic, log, now), [], None)
        epoch = store.directory.raise_leader_epoch(log.leader_epoch)
        file = log.files.fs.open(segment.path)
        if log.high_watermark > offset:  # as in a topic that is, or was, left to the kernel
            position, offset = _whole_up_to(file, segment, position, offset)
        loss = _loss(log, segment, position, offset, epoch)
        if loss is not None and log.topic not in LEDGERS:
            log.ledger.write([loss])
        cut_off(file, position)
        notes: list[str] = []
        end = Position(log.log_start_offset, segment.base_offset, position, offset)
        fresh = store.reopen(topic, log, end, now, notes)
    except OSError as error:
        raise fault_of(error, segment.path, position) from error
    if fresh.fault is None:
        fresh.roller.begin_epoch()
    if fresh.fault is not None:
        raise fresh.fault.without_frames()
    return BroughtOnline(fresh, notes, loss if log.topic in LEDGERS else None)


def _reopen_truncated(store: LogStore, topic: Topic, log: PartitionLog, now: Now) -> PartitionLog:
    """A log whose truncation failed amid it, which says where it ends; all before is synced. OSError, StorageFault."""
    end = Position(
        log.log_start_offset, log.synced_end.segment.base_offset, log.synced_end.position, log.synced_end.offset
    )
    fresh = store.reopen(topic, log, end, now, [])
    if fresh.fault is not None:
        raise fresh.fault.without_frames()
    return fresh


def _loss(log: PartitionLog, segment: Segment, position: int, offset: int, epoch: int) -> Loss | None:
    if offset == log.log_end_offset:
        return None
    records, size = log.log_end_offset - offset, segment.size - position
    return Loss(
        "sync_failed",
        log.topic,
        log.topic_id,
        log.partition,
        offset,
        log.log_end_offset,
        records,
        size,
        occasion=str(epoch),
    )


def _whole_up_to(file: File, segment: Segment, position: int, offset: int) -> tuple[int, int]:
    """Position and offset up to which the disk itself, not memory, has whole batches. OSError."""
    file.datasync()
    file.forget_cached(position // PAGE_BYTES * PAGE_BYTES, 0)
    try:
        for at, header in batches_in(file, position, min(segment.size, file.size()), position):
            if header.base_offset != offset:
                break
            position, offset = at + header.size, header.next_offset
    except (BrokenBatchError, OSError):
        return position, offset  # the rest is lost, and counted as such
    return position, offset


def cut_off(file: File, position: int) -> None:
    """Leave the confirmed bytes alone in the file, on the disk. OSError.

    Until their last page is there the file stays a byte longer: a start takes one that ends just there for synced.
    """
    page = position // PAGE_BYTES * PAGE_BYTES
    confirmed = bytes(file.read(position - page, page)) if position > page else b""
    longer = file.size() > position
    file.truncate(position + longer)
    write_all(file, confirmed, page)
    file.datasync()
    if longer:
        file.truncate(position)
        file.datasync()
