"""Jobs on one log as its role wants them: append, epochs, high watermark, removal from the front.

| effect | job | then |
|---|---|---|
| Append | on the loop, or by `writer` where the disk would make it wait | `log_moved`, a sync |
| Append of a batch amid which an empty log starts | in `files` | the same |
| BeginEpoch | on the loop, then the entry's sync in `disk`, of many together | `epoch_begun` |
| RemoveFront | in `files`, up to the high watermark | |
| AdvanceHighWatermark | the log shows more | notifies the waiters |

Does not contain: truncations (truncation_jobs.py), topics (topic_jobs.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from edge_broker.broker.outcomes import Outcome, Reply, RunInWorker
from edge_broker.broker.state.disk_space import ALWAYS_WRITTEN
from edge_broker.cluster.effects import (
    AdvanceHighWatermark,
    Append,
    BeginEpoch,
    RemoveFront,
)
from edge_broker.cluster.state.cluster_state import PartitionId
from edge_broker.errors import ErrorCode, Refusal, StorageFault
from edge_broker.network.cluster.jobs.replica_logs import BUSY_S, RETRY_S, ReplicaLogs, with_bugs_as_faults
from edge_broker.network.cluster.jobs.replica_space import ReplicaSpace
from edge_broker.network.dispatch.partition_reopener import after_worker
from edge_broker.network.log_lines import log_line
from edge_broker.storage.log.log_writer import RollDue, WriteUnderWay
from edge_broker.storage.replica.replica_log import Replica, as_fault, begins_before, keep_epochs
from edge_broker.storage.replica.replica_truncation import (
    hold,
    resume_as,
)
from edge_broker.storage.replica.reset_to_leader_start import begin_amid
from edge_broker.storage.retention.segment_removal import follow_start
from edge_broker.storage.segment.segment import WouldBlockError

if TYPE_CHECKING:
    from edge_broker.storage.log.partition_log import PartitionLog


class FollowerJobs:
    """Jobs on the logs of one member; a log that a worker cannot serve goes offline."""

    def __init__(self, logs: ReplicaLogs, space: ReplicaSpace) -> None:
        self._logs, self._space = logs, space
        self._broker, self._dispatcher, self._member, self._turn = logs.broker, logs.dispatcher, logs.member, logs.turn
        self._epochs: list[tuple[PartitionId, Replica, Callable[[], None]]] = []  # whose files are to be written next
        self._keeping = False

    def append(self, effect: Append) -> None:
        """Append a leader's records at an offset."""
        replica = self._logs.replica(effect.partition)
        if replica is not None and isinstance(effect.records, memoryview) and len(effect.records):
            self._append(effect.partition, replica, effect.records, effect.offset)

    def _append(self, partition: PartitionId, replica: Replica, records: memoryview, offset: int) -> None:
        log = replica.log
        stale = replica.log_end_offset != offset or self._logs.leads(partition)  # it was truncated meanwhile, or leads
        if log.fault is not None or replica.full or stale:
            self._logs.report_moved(partition)  # the member asks again
            return
        if self._broker.space.room_bytes < 0 and log.topic not in ALWAYS_WRITTEN:
            self._pause_fetches(partition, replica, Refusal(ErrorCode.KAFKA_STORAGE_ERROR, "there may be no room left"))
            return
        if log.writer.busy:
            self._logs.call_later(BUSY_S, self._append, partition, replica, records, offset)
            return
        try:
            first = begins_before(records, log.state)
            if first is not None:
                self._begin_amid(partition, replica, records, first.size)
                return
            if self._broker.throttle.slow:
                raise WouldBlockError
            begin = self._broker.clock.seconds()
            taken = replica.append(records, self._broker.time.now(), opens=False)
            self._broker.note_write_time(self._broker.clock.seconds() - begin, taken)
        except WouldBlockError:
            self._append_in_writer(partition, replica, records, offset)
            return
        except RollDue:
            self._broker.effects.roll(log)
            self._logs.call_later(BUSY_S, self._append, partition, replica, records, offset)
        except WriteUnderWay:
            self._logs.call_later(BUSY_S, self._append, partition, replica, records, offset)
        except Refusal as refusal:
            self._pause_fetches(partition, replica, refusal)
        except StorageFault as fault:
            self._logs.take_offline(log, fault)
            self._logs.report_moved(partition)
        else:
            self._finish_append(partition, replica, records, taken)

    def _begin_amid(self, partition: PartitionId, replica: Replica, records: memoryview, size: int) -> None:
        """Begin an empty log with a batch that it starts amid; whatever else came is appended then."""
        log, offset = replica.log, replica.log_end_offset
        if not hold(log):
            self._logs.call_later(BUSY_S, self._append, partition, replica, records, offset)
            return
        log_line("info", "log_started_within_batch", topic=log.topic, partition=log.partition, log_start_offset=offset)

        def log_reset(fresh: PartitionLog) -> Outcome:
            resume_as(log, fresh)
            replica.batches_appended()
            self._finish_append(partition, replica, records, size)
            return Reply(None)

        def reset_failed(error: Exception) -> Outcome:
            self._logs.release(log)
            if isinstance(error, Refusal):
                self._pause_fetches(partition, replica, error)
            else:
                self._logs.take_offline(log, error)
                self._logs.report_moved(partition)
            return Reply(None)

        work = partial(begin_amid, self._broker.store, log, records[:size], self._broker.time.now())
        self._broker.effects.start(
            after_worker(
                "disk",
                after_worker("writer", RunInWorker(with_bugs_as_faults(log.directory, work), log_reset, reset_failed)),
            )
        )

    def _append_in_writer(self, partition: PartitionId, replica: Replica, records: memoryview, offset: int) -> None:
        """Leave it to the worker `writer`, which waits for the disk."""
        log = replica.log
        try:
            writing = replica.begin_append(records, self._broker.time.now())
        except RollDue:
            self._broker.effects.roll(log)
            self._logs.call_later(BUSY_S, self._append, partition, replica, records, offset)
            return
        except (Refusal, StorageFault) as error:
            self._pause_fetches(partition, replica, error)
            return

        seconds, throttle, size = self._broker.clock.seconds, self._broker.throttle, len(writing.records)

        def work() -> float:
            begin = seconds()
            writing.run()
            return seconds() - begin

        def done(took: float) -> Outcome:
            throttle.unsynced_bytes += 0 if log.settings.left_to_kernel else size
            throttle.wrote_behind(took, size)
            try:
                taken = replica.end_append(writing)
            except StorageFault:
                self._broker.effects.offline([log])
                self._logs.report_moved(partition)
            except Refusal as refusal:
                self._pause_fetches(partition, replica, refusal)
            else:
                self._finish_append(partition, replica, records, taken)
            return Reply(None)

        def append_failed(error: Exception) -> Outcome:
            log.fail(as_fault(log, error))
            return done(0.0)

        self._broker.effects.start(RunInWorker(with_bugs_as_faults(log.directory, work), done, append_failed, "writer"))

    def _pause_fetches(self, partition: PartitionId, replica: Replica, error: Exception) -> None:
        """Fetch a leader's records again later that cannot be appended, or that find no space."""
        log = replica.log
        self._logs.log.line("error", "replica_append_refused", topic=log.topic, partition=log.partition, error=error)
        replica.pauses = True
        if isinstance(error, Refusal) and error.code == ErrorCode.KAFKA_STORAGE_ERROR and not self._space.full:
            self._broker.space.look_soon()

        def resume_fetches() -> None:
            replica.pauses = False
            self._logs.report_moved(partition)

        self._logs.call_later(RETRY_S, resume_fetches)

    def _finish_append(self, partition: PartitionId, replica: Replica, records: memoryview, taken: int) -> None:
        log = replica.log
        self._broker.space.room_bytes -= taken
        if replica.epoch_due:
            self._keep_epoch(partition, replica, lambda: None)
        if log.settings.sync_awaited:
            self._dispatcher.syncer.sync_soon(log)
        else:
            self._dispatcher.syncer.sync_later(log)
        if taken < len(records):
            self._logs.call_later(0, self._append, partition, replica, records[taken:], replica.log_end_offset)
        else:
            self._logs.report_moved(partition)

    def begin_epoch(self, effect: BeginEpoch) -> None:
        """Begin a leader epoch at the end of the log."""
        partition, epoch = effect
        replica = self._logs.replica(partition)
        if replica is None or replica.log.fault is not None:
            return
        found = self._member.partitions.get(partition)
        if found is None or found.leading is None or found.leading.epoch != epoch:
            return
        replica.begin_epoch(epoch)
        self._logs.show(replica, found.high_watermark)

        def epoch_begun() -> None:
            self._turn(lambda now_ms: self._member.epoch_begun(partition, epoch, now_ms))

        self._keep_epoch(partition, replica, epoch_begun)

    def _keep_epoch(self, partition: PartitionId, replica: Replica, then: Callable[[], None]) -> None:
        """Write the starts of epochs to the disk, after rolls, which run in the same worker.

        Starts that come due during a write are written together: a broker that takes over from a stopping one
        begins many epochs at once.
        """
        self._epochs.append((partition, replica, then))
        if not self._keeping:
            self._keep_epochs()

    def _keep_epochs(self) -> None:
        due, self._epochs, self._keeping = self._epochs, [], True
        replicas = list(dict.fromkeys(replica for _, replica, _ in due))
        batch = self._broker.store.batch_for(len(replicas))

        def epochs_stored(_: object) -> Outcome:
            for partition, replica, then in due:
                if replica.log.fault is None:
                    then()
                else:
                    self._broker.effects.offline([replica.log])
                    self._logs.report_moved(partition)
            return Reply(None)

        def over() -> None:
            self._keeping = False
            if self._epochs:
                self._keep_epochs()

        def storing_failed(error: Exception) -> Outcome:
            raise error  # it leaves its faults with the logs

        self._broker.effects.start(
            RunInWorker(partial(keep_epochs, replicas, batch), epochs_stored, storing_failed, "disk", over)
        )

    def remove_front(self, effect: RemoveFront) -> None:
        """Remove what the leader has removed from the front of its log."""
        replica = self._logs.replica(effect.partition)
        if replica is None or replica.log.fault is not None or self._logs.leads(effect.partition):
            return
        log, now = replica.log, self._broker.time.now()
        offset = min(effect.start_offset, log.high_watermark)

        def removal_failed(_: Exception) -> None:
            if log.fault is not None:
                self._broker.effects.offline([log])
                self._logs.report_moved(effect.partition)

        what = "removing what the leader has removed"
        self._logs.run_in_files(
            partial(follow_start, log, offset, now), lambda _: None, removal_failed, what, log.directory
        )

    def advance_high_watermark(self, effect: AdvanceHighWatermark) -> None:
        """Advance the high watermark."""
        replica = self._logs.replica(effect.partition)
        if replica is not None and replica.log.fault is None:
            self._logs.show(replica, effect.high_watermark)
