"""Let produces that find the lease unproved wait in line, so that those after them keep their order.

| the lease of this board (cluster/session_lease.py) | a produce to a partition that it leads |
|---|---|
| holds | is appended |
| is unproved, the session may live by this board's own clock, and nothing was refused since the lease held | waits |
| is unproved, otherwise | NOT_LEADER_OR_FOLLOWER, as is all that waits for that partition |
| holds again | those that wait are appended, first come, first served |

ZooKeeper that is silent for a moment refuses nothing then: a producer without idempotence that has several requests on
their way would send a rejected one again after the next ones. Once one is rejected, as the session is over or
for its own timeout, all after it are rejected too, until the lease holds again. A board that is cut off hears nothing,
so its own clock ends the wait, and clients go to the next leader.

Contains: which logs have a line, and when it moves. Does not contain: requests, and what they are answered.
"""

from __future__ import annotations

from edge_broker.cluster.member import ClusterMember
from edge_broker.cluster.state.cluster_state import PartitionId
from edge_broker.storage.log.log_writer import Busy
from edge_broker.storage.log.partition_log import PartitionLog


class LeaseUnproved(Busy):
    """Nothing was written: whether this board still leads is known once the lease is proved, or the session over."""


class LeaseWaits:
    """The lines of one member's partitions."""

    def __init__(self, member: ClusterMember) -> None:
        self._member = member
        self._lines: dict[PartitionLog, None] = {}
        self._refused: set[PartitionLog] = set()

    def waits(self, log: PartitionLog) -> bool:
        """Whether a produce to this log is to wait; `logs_to_retry` names the log once that is over."""
        found = self._member.partitions.get(PartitionId(log.topic, log.partition))
        if found is None or not found.leads_unproved() or log in self._refused or not self._member.session_may_live():
            return False
        self._lines[log] = None
        return True

    def refuse(self, log: PartitionLog) -> None:
        """Have all that waits for this log refused, and what comes, until the lease holds again."""
        if not self._member.lease_holds():
            self._refused.add(log)

    def logs_to_retry(self) -> list[PartitionLog]:
        """Return the logs whose lines are to move: their requests ask again."""
        if not self._lines and not self._refused:
            return []
        if self._member.lease_holds():
            self._refused.clear()
        elif self._member.session_may_live():
            moving = [log for log in self._lines if log in self._refused]
            for log in moving:
                del self._lines[log]
            return moving
        moving = list(self._lines)
        self._lines.clear()
        return moving
