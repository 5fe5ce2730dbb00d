"""Repairs of a replica: what is written, and what settles a missing range."""

from __future__ import annotations

from edge_broker.cluster.partition.partition import Partition
from edge_broker.cluster.state.cluster_state import PartitionState
from edge_broker.cluster.znodes.znode_codec import decode_state
from edge_broker.cluster.znodes.zookeeper import Node, SetData, Stat
from tests.support.partition_replica import PARTITION, MembersAround


def written(around: MembersAround) -> PartitionState:
    """What the replica has wished the state to be, last."""
    asked: SetData = around.written[-1]
    return decode_state(PARTITION, Node(asked.data, Stat(1, 1, 1, 0)))


def settles(made: Partition, around: MembersAround, version: int) -> None:
    """The write is done, as a watch tells."""
    state = written(around)
    made._write.stop()
    made.take_in(state, version)
