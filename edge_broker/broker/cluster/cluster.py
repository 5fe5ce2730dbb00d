"""The cluster as handlers see it: the parts that one member offers, each with one purpose.

| part | what it does | module |
|---|---|---|
| `view` | brokers, topics, partition states | cluster_view.py |
| `replicas` | this broker's own partitions | local_replicas.py |
| `gate` | admission of writes | replica_gate.py |
| `replication` | progress of logs, followers' fetches | replication.py |
| `changes` | topics, elections, producer ids | cluster_changes.py |
| `security` | the znode of users and ACLs | security_access.py |
| `waits` | conditions that requests wait for | change_waits.py |

A caller takes the part that it uses (broker/cluster_port.py has the Protocols). Does not contain: answers, decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from edge_broker.broker.cluster.change_waits import ChangeWaits
from edge_broker.broker.cluster.cluster_changes import ClusterChanges
from edge_broker.broker.cluster.cluster_view import ClusterView
from edge_broker.broker.cluster.local_replicas import LocalReplicas
from edge_broker.broker.cluster.replica_gate import ReplicaGate
from edge_broker.broker.cluster.replication import Replication
from edge_broker.broker.cluster.security_access import SecurityAccess
from edge_broker.broker.known_entries import LedgerEntries
from edge_broker.cluster.member import ClusterMember
from edge_broker.cluster.znodes.metadata_image import DeletedTopic

if TYPE_CHECKING:
    from edge_broker.storage.log.partition_log import PartitionLog


class Cluster:
    """The parts of one member; `carry_out` has its effects executed after each call that may leave some."""

    def __init__(
        self, member: ClusterMember, listener: str, now_ms: Callable[[], float], carry_out: Callable[[], None]
    ) -> None:
        """`listener` is the one for brokers, `now_ms` the broker's clock since boot."""
        self.view = ClusterView(member, listener, now_ms)
        self.replicas = LocalReplicas(member, now_ms)
        self.gate = ReplicaGate(member, self.replicas, now_ms)
        self.replication = Replication(member, self.replicas, now_ms, carry_out)
        self.changes = ClusterChanges(member, now_ms, carry_out)
        self.security = SecurityAccess(member, carry_out)
        self.waits = ChangeWaits(now_ms)
        self.entries = LedgerEntries()
        self.on_deleted: Callable[[Sequence[DeletedTopic]], None] = lambda topics: None
        """Hears of topics that are gone before any request does."""
        self.on_moved: Callable[[PartitionLog], None] = lambda log: None
        """Has those that wait for a log try again; what it leaves is the caller's to apply."""
        self._member = member

    def update(self) -> None:
        """Update the view and check what requests wait for: once after each turn in which effects were executed.

        Callbacks leave effects with the broker, for the caller to apply; the same holds for `tick`.
        """
        self.view.update()
        if self._member.image.deleted:
            deleted, self._member.image.deleted = self._member.image.deleted, []
            self.on_deleted(deleted)
        self.waits.check()
        self._retry_lease_waits()

    def tick(self, now_ms: float) -> None:
        """Time has passed."""
        self._retry_lease_waits()
        self.waits.expire(now_ms)

    def _retry_lease_waits(self) -> None:
        for log in self.gate.take_retries():
            self.on_moved(log)
