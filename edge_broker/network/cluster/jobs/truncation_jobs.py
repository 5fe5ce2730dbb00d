"""Jobs that replace a log or part of it: truncation after a ledger record, corruption, missing ranges, reopening.

| effect | job | then |
|---|---|---|
| Enter | after rolls and writes, none begins before the end: the ledger, in `files` | `losses_recorded` |
| Truncate, StartAnew, CutDamage, PassOver | in `files`, on a log that is held | `truncated` |
| OwnUp | in `files` | `owned_up` |
| Reopen | in `files`, after all jobs in flight | `reopened` |

The ledger record of a loss is on the disk before the truncation. A ledger that refuses it for now is asked again after
RETRY_S, if the truncation is still wanted; the log is not held meanwhile.

Does not contain: when a log is truncated (edge_broker.cluster).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from edge_broker.broker.outcomes import Outcome, Reply, RunInWorker
from edge_broker.cluster.effects import (
    CutDamage,
    Enter,
    OwnUp,
    PassOver,
    Reopen,
    StartAnew,
    Truncate,
)
from edge_broker.cluster.state.cluster_state import PartitionId
from edge_broker.errors import StorageFault
from edge_broker.network.cluster.jobs.replica_logs import BUSY_S, RETRY_S, ReplicaLogs, with_bugs_as_faults
from edge_broker.network.dispatch.partition_reopener import after_worker
from edge_broker.network.log_lines import log_line
from edge_broker.storage.loss.quarantine import quarantine
from edge_broker.storage.replica.missing_ranges import record_missing
from edge_broker.storage.replica.reopen_replica import ReopenedLog, reopen
from edge_broker.storage.replica.replica_truncation import (
    RecordedTruncation,
    cut_damage,
    enter,
    enter_unknown,
    hold,
    resume_as,
    truncate,
)
from edge_broker.storage.replica.reset_to_leader_start import start_anew
from edge_broker.storage.replica.skip_lost_range import pass_over
from edge_broker.storage.segment.segment import DamageFound
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.storage.log.partition_log import PartitionLog


class TruncationJobs:
    """Truncations of the logs of one member."""

    def __init__(self, logs: ReplicaLogs) -> None:
        self._logs = logs
        self._broker, self._dispatcher, self._member, self._turn = logs.broker, logs.dispatcher, logs.member, logs.turn

    def enter(self, effect: Enter) -> None:
        """Write the losses of a truncation into the ledger, with the log held."""
        replica = self._logs.replica(effect.partition)
        if replica is None or replica.log.fault is not None:
            return
        log, what = replica.log, f"writing {effect.cause} down"

        def retry_later(_: Exception) -> None:
            self._logs.call_later(RETRY_S, self.enter, effect)

        lost = effect.losses[0].end_offset if effect.losses else 0
        if lost is None:
            unknown = partial(enter_unknown, log, effect.losses[0].epoch, effect.cause)
            self._logs.run_in_files(unknown, lambda _: self._report_entered(effect), retry_later, what, log.directory)
            return
        if not self._is_wanted(effect):
            return
        if effect.partition not in self._logs.held and not hold(log):
            self._logs.call_later(BUSY_S, self.enter, effect)
            return
        found = self._member.partitions[effect.partition]
        assert found.cutting is not None

        def losses_recorded(end: RecordedTruncation) -> None:
            if self._is_wanted(effect):
                self._logs.held[effect.partition] = end
                self._report_entered(effect)
            else:
                self._logs.release(log)
                self._logs.report_moved(effect.partition)

        def recording_failed(error: Exception) -> None:
            """The ledger may take it later; an unreadable log cannot be truncated."""
            if isinstance(error, StorageFault) and f"{error.path}/".startswith(f"{log.directory}/"):
                self._logs.fail(effect.partition, error)
            self._logs.release(log)
            self._logs.report_moved(effect.partition)  # it may have been elected meanwhile, and wait for that
            retry_later(error)

        work = partial(_enter_around_damage, log, found.cutting.lost_from)
        self._logs.run_in_files(work, losses_recorded, recording_failed, what, log.directory)

    def _is_wanted(self, effect: Enter) -> bool:
        found = self._member.partitions.get(effect.partition)
        return found is not None and found.cutting is not None and found.cutting.token == effect.token

    def _report_entered(self, effect: Enter) -> None:
        self._turn(lambda now_ms: self._member.losses_recorded(effect.partition, effect.token, now_ms))

    def truncate(self, effect: Truncate) -> None:
        """Truncate a log whose losses are in the ledger."""
        replica, entered = self._logs.replica(effect.partition), self._logs.held.pop(effect.partition, None)
        if replica is None or entered is None:
            return
        log = replica.log
        log_line(
            "warning", "truncation_started", topic=log.topic, partition=log.partition, log_end_offset=effect.end_offset
        )
        self._cut(effect.partition, log, partial(truncate, self._broker.store, log, entered, self._broker.time.now()))

    def start_anew(self, effect: StartAnew) -> None:
        """Reset a log to the leader's log start offset."""
        self._remake(effect, "log_reset_started", start_anew, log_start_offset=effect.start_offset)

    def cut_damage(self, effect: CutDamage) -> None:
        """Truncate a log before its first corrupt batch."""
        self._remake(effect, "corruption_truncation_started", cut_damage)

    def pass_over(self, effect: PassOver) -> None:
        """Skip a range that no replica has."""
        self._remake(effect, "lost_range_skip_started", pass_over, up_to=effect.end_offset)

    def _remake(
        self, effect: StartAnew | CutDamage | PassOver, event: str, make: Callable[..., PartitionLog], **facts: object
    ) -> None:
        """Pause a log, and have another one made of it; not one that is offline, or of a topic that was replaced."""
        partition = effect.partition
        replica, found = self._logs.replica(partition), self._member.partitions.get(partition)
        if replica is None or replica.log.fault is not None or found is None or found.log is not replica:
            return
        log = replica.log
        if self._logs.held.pop(partition, None) is None and not hold(log):
            self._logs.call_later(BUSY_S, partial(self._remake, effect, event, make, **facts))
            return
        where = {"topic": log.topic, "partition": log.partition, "log_end_offset": log.log_end_offset}
        log_line("warning", event, **where, **facts)
        self._cut(partition, log, partial(make, self._broker.store, log, *effect[1:], self._broker.time.now()))

    def _cut(self, partition: PartitionId, log: PartitionLog, work: Callable[[], PartitionLog]) -> None:
        """Go on as what is made of a log that is held."""

        def cut(fresh: PartitionLog) -> Outcome:
            resume_as(log, fresh)
            self._turn(lambda now_ms: self._member.log_truncated(partition, now_ms))
            return Reply(None)

        def remake_failed(error: Exception) -> Outcome:
            self._logs.release(log)
            self._logs.take_offline(log, error)
            self._logs.report_moved(partition)
            return Reply(None)

        work = with_bugs_as_faults(log.directory, work)
        self._broker.effects.start(after_worker("disk", after_worker("writer", RunInWorker(work, cut, remake_failed))))

    def record_missing(self, effect: OwnUp) -> None:
        """Record in the ledger the missing ranges that no replica has; the member requests it again after a failure."""
        replica = self._logs.replica(effect.partition)
        if replica is None:
            return
        log = replica.log

        def over(_: object) -> None:
            self._broker.effects.note(*log.take_damage_notes())
            self._turn(lambda now_ms: self._member.owned_up(effect.partition, now_ms))

        def retry(error: Exception) -> None:
            self._logs.call_later(RETRY_S, over, error)

        what = "writing down what no replica has"
        self._logs.run_in_files(partial(record_missing, log), over, retry, what, log.directory)

    def reopen(self, effect: Reopen) -> None:
        """Reopen an offline log; each failure is logged, as tries are rare."""
        partition, anew, kept_until = effect
        replica, known = self._logs.replica(partition), self._member.partitions.get(partition)

        def over() -> None:
            self._turn(lambda now_ms: self._member.log_reopened(partition, now_ms))

        if replica is None or replica.log.fault is None or known is None or known.log is not replica:
            over()
            return
        log = replica.log
        where = {"topic": log.topic, "partition": log.partition}

        def log_reopened(found: ReopenedLog) -> Outcome:
            if self._broker.store.holds(log):  # else it was deleted meanwhile
                before, fault = log.log_end_offset, log.fault
                self._logs.held.pop(partition, None)
                log.go_on_as(found.log)
                replica.led_from = None
                self._dispatcher.is_back(log)
                for note in found.notes:
                    log_line("warning", "reopening_noted", note=note)
                ends = {"log_end_offset": log.log_end_offset, "before": before}
                log_line("warning", "partition_online", **where, **ends, fault=fault)
            over()
            return Reply(None)

        def reopening_refused(error: Exception) -> Outcome:
            log_line("warning", "partition_still_offline", **where, error=error)
            over()
            return Reply(None)

        opens = partial(
            reopen, self._broker.store, log, self._broker.time.now(), may_recreate=anew, kept_until=kept_until
        )
        work = partial(opens, led_from=replica.led_from)
        works = RunInWorker(with_bugs_as_faults(log.directory, work), log_reopened, reopening_refused)
        self._broker.effects.start(after_worker("disk", after_worker("writer", works)))


@runs_in("files")
def _enter_around_damage(log: PartitionLog, end_offset: int) -> RecordedTruncation:
    """As `enter`; what is damaged of that which goes is quarantined first, and so in the ledger as that."""
    tried = set[tuple[str, int]]()
    while True:
        try:
            return enter(log, end_offset)
        except DamageFound as found:
            place = found.segment.path, found.position
            if place in tried or quarantine(log, found, lost=True) is None:
                raise StorageFault(*place, found.reason) from found
            tried.add(place)
