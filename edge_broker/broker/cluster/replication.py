"""Replication as this broker's logs and its followers drive it: progress of a log, fetches, space for others.

| event | call |
|---|---|
| a log was written, or the disk has confirmed more | `log_moved` |
| a follower fetches | `fetch_from`; its session is in `fetches` |
| this disk is full | `has_spare_replicas`, before this broker evicts for itself |
| a follower's disk is full | `eviction_offsets` (cluster/partition/room.py) |

Does not contain: decisions (edge_broker.cluster), sockets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from edge_broker.broker.cluster.follower_fetch_sessions import FollowerFetches
from edge_broker.broker.cluster.local_replicas import LocalReplicas
from edge_broker.broker.state.disk_space import ALWAYS_WRITTEN
from edge_broker.cluster.member import ClusterMember
from edge_broker.cluster.state.cluster_state import PartitionId

if TYPE_CHECKING:
    from edge_broker.cluster.inter_broker_messages import ReplicaFetch, ReplicaFetched
    from edge_broker.storage.log.partition_log import PartitionLog


class Replication:
    """Events of replication for one member; `carry_out` runs the effects that a call leaves."""

    def __init__(
        self,
        member: ClusterMember,
        replicas: LocalReplicas,
        now_ms: Callable[[], float],
        carry_out: Callable[[], None],
    ) -> None:
        self.fetches = FollowerFetches()
        self._member, self._replicas = member, replicas
        self._now_ms, self._carry_out = now_ms, carry_out

    @property
    def now_ms(self) -> float:
        """The time that deadlines of fetches go by."""
        return self._now_ms()

    def log_moved(self, log: PartitionLog) -> None:
        """Note that a log was written, or that the disk has confirmed more."""
        partition = PartitionId(log.topic, log.partition)
        replica = self._replicas.replica(partition)
        if replica is not None:
            replica.batches_appended()
        self._member.log_moved(partition, self._now_ms())
        self.fetches.each(lambda session: session.log_moved(partition))
        self._carry_out()

    def fetch_from(self, fetch: ReplicaFetch, *, is_new: bool = True) -> ReplicaFetched:
        """Return the response to a follower's fetch, without the records; as FetchSource."""
        answer = self._member.fetch_from(fetch, self._now_ms(), is_new=is_new)
        self._carry_out()
        return answer

    def has_spare_replicas(self) -> bool:
        """Return whether enough other replicas of some partition led here have space; see cluster/partition/room.py."""
        self._member.now_ms = self._now_ms()
        found = self._member.partitions.items()
        return any(each.spares_unpassed for name, each in found if name.topic not in ALWAYS_WRITTEN)

    def eviction_offsets(self) -> dict[PartitionLog, int]:
        """Return below which offset each log led here is evicted for followers on full disks; see room.py."""
        self._member.now_ms = self._now_ms()
        if not self._member.lease_holds():
            return {}
        found = {}
        for name, each in self._member.partitions.items():
            offset = each.evicts_below if name.topic not in ALWAYS_WRITTEN else None
            replica = self._replicas.replica(name) if offset is not None else None
            if replica is not None and offset is not None:
                found[replica.log] = offset
        return found
