"""The replicas of this broker: which partitions it leads, in which epoch, and where their logs end.

Does not contain: what other brokers hold (cluster_view.py), whether a write is admitted (replica_gate.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from edge_broker.cluster.member import ClusterMember
from edge_broker.cluster.partition.partition import LEADS, Partition
from edge_broker.cluster.state.cluster_state import PartitionId
from edge_broker.cluster.state.replica_log_view import NEWEST_EPOCH, NoLog, epoch_end, last_epoch
from edge_broker.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from edge_broker.storage.replica.replica_log import Replica


class LocalReplicas:
    """The partitions of one member; reads only."""

    def __init__(self, member: ClusterMember, now_ms: Callable[[], float]) -> None:
        """`now_ms`: the broker's clock since boot, by which the lease is checked."""
        self._member = member
        self._now_ms = now_ms

    def led_partition(self, topic: str, partition: int) -> Partition | None:
        """Return the partition, if this broker leads it."""
        found = self._member.partitions.get(PartitionId(topic, partition))
        return found if found is not None and found.role in LEADS else None

    def epoch_led(self, topic: str, partition: int) -> int | None:
        """Return the leader epoch in which this broker leads a partition; None: it does not."""
        led = self.led_partition(topic, partition)
        return led.leading.epoch if led is not None and led.leading is not None else None

    def leads(self, partition: PartitionId, leader_epoch: int) -> bool:
        """Return whether this broker leads a partition in this epoch."""
        return self.epoch_led(*partition) == leader_epoch

    def surely_leads(self, topic: str, partition: int) -> bool:
        """Return whether this broker leads a partition, and its lease excludes a newer leader."""
        self._member.now_ms = self._now_ms()
        return self.led_partition(topic, partition) is not None and self._member.lease_holds()

    def replica(self, partition: PartitionId) -> Replica | None:
        """Return the log of a partition that is held here."""
        found = self._member.partitions.get(partition)
        return cast("Replica", found.log) if found is not None and not isinstance(found.log, NoLog) else None

    def log_end(self, topic: str, partition: int, epoch: int = NEWEST_EPOCH) -> tuple[int, int] | None:
        """Return the greatest epoch here that is not above this one, and where it ended; Refusal.

        None: no replica of the partition is open here.
        """
        found = self._member.partitions.get(PartitionId(topic, partition))
        if found is not None and not found.log.online:
            raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {topic}-{partition} is offline here")
        return None if found is None else epoch_end(found.log, epoch)

    def end_here(self, topic: str, partition: int) -> tuple[int, int]:
        """Return the end of what counts as replicated in this broker's replica, and its log's last epoch; Refusal."""
        found = self._member.partitions.get(PartitionId(topic, partition))
        if found is None:
            raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"no replica of {topic}-{partition} is open here")
        if not found.log.online:
            raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {topic}-{partition} is offline here")
        return found.log.acknowledged_offset, last_epoch(found.log)

    def latest_offset(self, topic: str, partition: int) -> int | None:
        """Return the end of what readers may see; None: OFFSET_NOT_AVAILABLE, as a former leader may have shown more.

        See KIP-207.
        """
        found = self.led_partition(topic, partition)
        return found.latest_offset() if found is not None else None

    def not_led(self, topic: str, partition: int) -> Refusal:
        """Return the refusal of a request to a partition that another broker leads, or none."""
        return Refusal(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"broker {self._member.identity.broker} does not lead {topic}-{partition}; refresh the metadata",
        )
