"""A replica's log that is offline, opened again while its broker runs, by the recovery of a start.

| the log | what is opened |
|---|---|
| failed while it was open | what the disk had confirmed: the rest is not confirmed (resume_failed_log.py) |
| the same, and it led since its last fetch | the same; what the leader lacks is in the ledger first (`sync_failed`) |
| failed amid a truncation that was decided | that is executed (recovery/truncation_file.py) |
| was never opened | what lies there, as the next start would |
| the same, as its directory or all segments are missing | an empty log, once no broker counts on this replica |

A follower's unsynced end comes from the leader again, and is no loss. No epoch is raised: elections do that.

A topic whose answers wait for no sync has acknowledged more than the disk had confirmed, under the registration of now;
so its log stays offline until the next start, which comes with another one.

Does not contain: when it is tried, who counts on it (partition.py). Source: fsync(2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edge_broker.errors import StorageFault
from edge_broker.storage.files.atomic_files import fault_of
from edge_broker.storage.metadata.loss_records import Loss
from edge_broker.storage.metadata.topic_record import LEDGERS
from edge_broker.storage.recovery.open_partition import TRUNCATION
from edge_broker.storage.recovery.recovery_checkpoint import Position
from edge_broker.storage.replica.resume_failed_log import cut_off
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.storage.files.data_age import Now
    from edge_broker.storage.log.partition_log import PartitionLog
    from edge_broker.storage.log_store import LogStore
    from edge_broker.storage.topic import Topic


class ReopenedLog(NamedTuple):
    """The log that an offline one is to `go_on_as`, and sentences about it."""

    log: PartitionLog
    notes: list[str]


@runs_in("files")
def reopen(
    store: LogStore, log: PartitionLog, now: Now, *, led_from: int | None, may_recreate: bool, kept_until: int = 0
) -> ReopenedLog:
    """Open an offline log of a replica again, of which nothing else is in progress.

    `led_from`: where its own appends as a leader began, since when it has fetched nothing; `kept_until`: up to where
    another leader has them. `anew`: no broker counts on it, so a missing one may be made. StorageFault, Refusal: the
    Refusal: the disk or the ledger still refuses, and the log stays as it is.
    """
    topic = store.kept_topic_of(log)
    try:
        if may_recreate and log.missing:
            return ReopenedLog(
                store.make_anew(topic, log), [f"{log.directory}: an empty log instead of the missing one"]
            )
        return _open(store, topic, log, now, None if led_from is None else max(led_from, kept_until))
    except OSError as error:
        raise fault_of(error, log.directory, 0) from error


def _open(store: LogStore, topic: Topic, log: PartitionLog, now: Now, lost_from: int | None) -> ReopenedLog:
    notes: list[str] = []
    end = store.stored_end(topic, log)
    if log.may_come_online:
        if not log.settings.sync_awaited:
            raise StorageFault(log.directory, 0, "what it answered before any sync may be gone; restart the broker")
        segment, position, offset, _ = log.synced_end
        end = Position(log.log_start_offset, segment.base_offset, position, offset)
        if not log.files.fs.exists(f"{log.directory}/{TRUNCATION}"):
            _enter(log, lost_from)
            cut_off(log.files.fs.open(segment.path), position)
    fresh = store.reopen(topic, log, end, now, notes)
    if fresh.fault is not None:
        raise fresh.fault.without_frames()
    return ReopenedLog(fresh, notes)


def _enter(log: PartitionLog, lost_from: int | None) -> None:
    """Record what was acknowledged at acks=1, and no disk may have. Losses of a ledger are forwarded again."""
    end_offset = log.log_end_offset
    first_offset = end_offset if lost_from is None else max(log.synced_end.offset, lost_from)
    if first_offset < end_offset and log.topic not in LEDGERS:
        where = (log.topic, log.topic_id, log.partition, first_offset, end_offset)
        log.ledger.write([Loss("sync_failed", *where, None, None, leader_epoch=log.leader_epoch)])
