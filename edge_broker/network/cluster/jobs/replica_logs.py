"""The logs of one member, and how jobs on them run: later, in the worker `files`, and after a failure.

A job that raises leaves its log in an unknown state, so the log goes offline and other replicas go on.

Does not contain: the jobs (topic_jobs.py, follower_jobs.py, truncation_jobs.py), the wishes of the member.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from edge_broker.broker.outcomes import Outcome, Reply, RunInWorker
from edge_broker.cluster.state.cluster_state import PartitionId
from edge_broker.errors import Refusal, StorageFault
from edge_broker.network.log_lines import LimitedLog
from edge_broker.storage.replica.replica_log import Replica, as_fault
from edge_broker.storage.replica.replica_truncation import (
    RecordedTruncation,
    release_log,
)

if TYPE_CHECKING:
    import asyncio

    from edge_broker.broker.broker import Broker
    from edge_broker.cluster.member import ClusterMember
    from edge_broker.network.dispatch.dispatcher import Dispatcher
    from edge_broker.storage.log.partition_log import PartitionLog

RETRY_S = 0.5
BUSY_S = 0.005
T = TypeVar("T")


class ReplicaLogs:
    """The logs by partition; `turn` runs a call on the member and the effects that it leaves."""

    def __init__(
        self,
        broker: Broker,
        dispatcher: Dispatcher,
        loop: asyncio.AbstractEventLoop,
        member: ClusterMember,
        turn: Callable[[Callable[[float], None]], None],
    ) -> None:
        self.broker, self.dispatcher, self.member, self.turn = broker, dispatcher, member, turn
        self.replicas: dict[PartitionLog, Replica] = {}
        self.held: dict[PartitionId, RecordedTruncation] = {}  # logs that are held for a truncation
        self.log = LimitedLog(loop)
        self._loop = loop

    def end_log_window(self) -> None:
        """Write the sums of lines that were left out; for a stop."""
        self.log.end_window()

    def replica(self, partition: PartitionId) -> Replica | None:
        """The log of a partition."""
        log = self.broker.store.log(*partition)
        return self.replicas.get(log) if log is not None else None

    def leads(self, partition: PartitionId) -> bool:
        """Return whether the member leads a partition, or is about to."""
        found = self.member.partitions.get(partition)
        return found is not None and found.leading is not None

    def report_moved(self, partition: PartitionId) -> None:
        """Report to the member that a log was written, or is not what it was."""
        self.turn(lambda now_ms: self.member.log_moved(partition, now_ms))

    def fail(self, partition: PartitionId, error: Exception) -> None:
        """Take a log offline whose state is unknown after a failure: other replicas go on."""
        replica = self.replica(partition)
        if replica is not None:
            self.take_offline(replica.log, error)

    def take_offline(self, log: PartitionLog, error: Exception) -> None:
        """Take a log offline, with the error as its fault."""
        log.fail(as_fault(log, error))
        self.broker.effects.offline([log])

    def release(self, log: PartitionLog) -> None:
        """Release a log that was held, and sync it again if a sync was due meanwhile."""
        release_log(log)
        if log.state.synced.offset < log.log_end_offset:
            self.broker.effects.sync(log)

    def show(self, replica: Replica, high_watermark: int) -> None:
        """Make a log visible up to its high watermark, and notify the waiters."""
        replica.show(high_watermark)
        self.broker.effects.high_watermark_moved(replica.log)

    def wake_waiters(self, partition: PartitionId) -> None:
        """Notify those that wait for a log that its leader has changed."""
        replica = self.replica(partition)
        if replica is not None:
            self.broker.effects.high_watermark_moved(replica.log)

    def call_later(self, delay_s: float, call: Callable[..., object], *arguments: Any) -> None:
        """Call this after a delay, in a step of its own, and apply what it leaves."""

        def call_and_apply() -> None:
            call(*arguments)
            self.dispatcher.apply()

        self._loop.call_later(delay_s, call_and_apply)

    def run_in_files(
        self,
        work: Callable[[], Any],
        then: Callable[[Any], None],
        failed: Callable[[Exception], None],
        what: str,
        where: str,
    ) -> None:
        """Run work in the worker `files`; a bug in it counts as a fault of `where`."""

        def done(result: Any) -> Outcome:
            then(result)
            return Reply(None)

        def cannot(error: Exception) -> Outcome:
            self.log.line("error", "cluster_job_failed", what=what, error=error)
            failed(error)
            return Reply(None)

        self.broker.effects.start(RunInWorker(with_bugs_as_faults(where, work), done, cannot))


def with_bugs_as_faults(where: str, work: Callable[[], T]) -> Callable[[], T]:
    """Return the same work with any bug as a fault: the state that it left is unknown, so it is not retried."""

    def run() -> T:
        try:
            return work()
        except (StorageFault, Refusal):
            raise
        except Exception as error:
            raise StorageFault(where, 0, f"this failed: {error!r}") from error

    return run
