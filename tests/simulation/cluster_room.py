"""The space for internal topics on a simulated board: a card on which not a byte is left, and what a broker does then.

| a write of an internal topic | found |
|---|---|
| the card has no byte left | it is refused, and the log's writer has that in mind |
| else | it is written, be the card full for all other topics |

The broker's own code (`network/cluster/jobs/replica_space.py`) decides the rest, with logs of the simulation in it.

Does not contain: other topics, which a full card refuses by the broker's marks (cluster_cards.py).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from edge_broker.broker.state.disk_space import ALWAYS_WRITTEN
from edge_broker.cluster.member import ClusterMember
from edge_broker.cluster.state.cluster_state import PartitionId
from edge_broker.network.cluster.jobs.replica_space import ReplicaSpace

if TYPE_CHECKING:
    from edge_broker.storage.log.partition_log import PartitionLog
    from edge_broker.storage.replica.replica_log import Replica
    from tests.simulation.cluster_world import Board

PLENTY_BYTES = 1 << 30


class InternalRoom(ReplicaSpace):
    """The shell's rule about internal topics, for one process."""

    def __init__(self, board: Board, member: ClusterMember) -> None:
        self._board, self._member = board, member
        self._logs: dict[PartitionId, Any] = {}

    def refuses(self, partition: PartitionId) -> bool:
        """Return whether a write finds no space; of another topic: never."""
        if partition.topic not in ALWAYS_WRITTEN or not self._board.no_byte_left:
            return False
        self._found(partition).writer.out_of_space = True
        return True

    def look(self) -> None:
        """Do as the broker does with each tick."""
        held = {each: found.log for each, found in self._member.partitions.items() if each.topic in ALWAYS_WRITTEN}
        if not held:
            return
        free = 0 if self._board.no_byte_left else PLENTY_BYTES
        self._broker: Any = SimpleNamespace(space=SimpleNamespace(status=SimpleNamespace(free=free)))
        self._replicas: Any = {self._found(each): log for each, log in held.items()}
        self._look_at_internal(full=True)

    def _found(self, partition: PartitionId) -> Any:
        made = _Log(*partition)
        return self._logs.setdefault(partition, made)

    def _block_internal(self, log: PartitionLog, replica: Replica, *, blocked: bool) -> None:
        """Without a line in the log."""
        replica.full = blocked
        self._member.tick_until_calm(PartitionId(log.topic, log.partition))


class _Log:
    """What the rule looks at of a log."""

    def __init__(self, topic: str, partition: int) -> None:
        self.topic, self.partition = topic, partition
        self.writer = SimpleNamespace(out_of_space=False)
