"""Admission of writes to replicated partitions: before the append, while it is replicated, and once its time is over.

| when | asked | refusal |
|---|---|---|
| before the append | `check_append` | NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS; LeaseUnproved: the write waits |
| appended, not acknowledged yet | `refuse_old_epoch` | NOT_LEADER_OR_FOLLOWER unless this broker leads in that epoch |
| expired before the append | `refuse_unproved` | REQUEST_TIMED_OUT while the lease is unproved |
| expired after the append | `refuse_expired` | NOT_ENOUGH_REPLICAS_AFTER_APPEND where the ISR is too small |

The journal is not replicated: every write to it passes. Does not contain: requests, and when they expire.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from edge_broker.broker.cluster.lease_waits import LeaseUnproved, LeaseWaits
from edge_broker.broker.cluster.local_replicas import LocalReplicas
from edge_broker.cluster.member import ClusterMember
from edge_broker.cluster.state.cluster_state import PartitionId
from edge_broker.errors import ErrorCode, Refusal
from edge_broker.storage.metadata.topic_record import JOURNAL_TOPIC

if TYPE_CHECKING:
    from edge_broker.storage.log.partition_log import PartitionLog


class ReplicaGate:
    """Admits writes to the partitions of one member."""

    def __init__(self, member: ClusterMember, replicas: LocalReplicas, now_ms: Callable[[], float]) -> None:
        self._member, self._replicas, self._now_ms = member, replicas, now_ms
        self._lease_waits = LeaseWaits(member)

    def check_append(self, log: PartitionLog, *, all_in_sync: bool, waits: bool = False) -> None:
        """Refuse what may not be appended now; `all_in_sync`: it comes with acks=all.

        Raise LeaseUnproved if it `waits` until the lease is proved or over (lease_waits.py).
        """
        if log.topic == JOURNAL_TOPIC:
            return
        found = self._member.partitions.get(PartitionId(log.topic, log.partition))
        self._member.now_ms = self._now_ms()
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER if found is None else found.append_error(all_in_sync=all_in_sync)
        if error is ErrorCode.NOT_ENOUGH_REPLICAS and found is not None:
            text = f"fewer than min.insync.replicas ({found.needed}) keep up; nothing was written"
            raise Refusal(error, f"{log.topic}-{log.partition}: {text}")
        if error is not ErrorCode.NONE:
            if waits and self._lease_waits.waits(log):
                raise LeaseUnproved
            raise self._replicas.not_led(log.topic, log.partition)

    def refuse_old_epoch(self, log: PartitionLog, leader_epoch: int) -> Refusal | None:
        """Return why a write of an epoch is not acknowledged: this broker does not lead in it, and it may be lost."""
        if log.topic == JOURNAL_TOPIC:
            return None
        if self._replicas.epoch_led(log.topic, log.partition) == leader_epoch:
            return None
        return self._replicas.not_led(log.topic, log.partition)

    def refuse_expired(self, log: PartitionLog) -> Refusal | None:
        """Return NOT_ENOUGH_REPLICAS_AFTER_APPEND if a write expired because the ISR is too small."""
        try:
            self.check_append(log, all_in_sync=True)
        except Refusal as refusal:
            if refusal.code == ErrorCode.NOT_ENOUGH_REPLICAS:
                text = f"fewer than min.insync.replicas of {log.topic}-{log.partition} have what was written"
                return Refusal(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, text)
        return None

    def refuse_unproved(self, log: PartitionLog) -> Refusal | None:
        """Return why a write expired before its append; an unproved lease refuses all writes after it, too."""
        self._member.now_ms = self._now_ms()
        if self._member.lease_holds():
            return None
        self._lease_waits.refuse(log)
        text = f"ZooKeeper did not say in time who leads {log.topic}-{log.partition}; nothing was written, retry"
        return Refusal(ErrorCode.REQUEST_TIMED_OUT, text)

    def take_retries(self) -> list[PartitionLog]:
        """Return the logs whose writes waited for the lease and are to be retried."""
        return self._lease_waits.logs_to_retry()
