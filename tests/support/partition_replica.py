"""A replica of a partition as the cluster member runs it, and the members around it."""

from __future__ import annotations

from edge_broker.cluster.effects import Effect, Send
from edge_broker.cluster.inter_broker_messages import ReplicaFetch
from edge_broker.cluster.partition.partition import Partition, Role, Settings
from edge_broker.cluster.state.acting import Lines
from edge_broker.cluster.state.cluster_state import (
    Identity,
    InSyncReplica,
    PartitionId,
    PartitionState,
    Registration,
    Topic,
)
from edge_broker.cluster.znodes.znode_codec import decode_state
from edge_broker.cluster.znodes.zookeeper import Multi, Node, SetData, Stat
from tests.simulation.cluster_disk import Record, SimLog

PARTITION = PartitionId("t", 0)
TOPIC = Topic("id", ((1, 2, 3),), {})
ME, B, C = InSyncReplica(1, "one", 5), InSyncReplica(2, "two", 6), InSyncReplica(3, "three", 7)


class MembersAround:
    """A member of which nothing is asked but what a partition asks."""

    identity = Identity(1, "one", (4, 5))
    settings = Settings()
    connected = True
    leaving = False
    lines: Lines | None = None

    def __init__(self) -> None:
        self.now_ms = 1000.0
        self.effects: list[Effect] = []
        self.written: list[SetData] = []
        self.registrations = {each.broker: Registration(*each[::2], each.directory) for each in (ME, B, C)}

    def is_gone(self, entry: InSyncReplica | None) -> bool:
        return entry is None or entry.broker not in self.registrations

    def lease_holds(self) -> bool:
        return True

    def emit(self, effect: Effect) -> None:
        self.effects.append(effect)

    def token(self) -> int:
        return len(self.effects)

    def tick_until_calm(self, partition: PartitionId) -> None:
        self.hurried = partition

    def state_written(self, partition: PartitionId, state: PartitionState, version: int) -> None:
        self.told = state, version

    def ask(self, request: object, then: object) -> None:
        assert isinstance(request, Multi)
        write = request.operations[-1]
        assert isinstance(write, SetData)
        self.written.append(write)

    def took(self) -> list[Effect]:
        """What is wanted since this was asked last."""
        found, self.effects = self.effects, []
        return found

    def fetches(self) -> list[ReplicaFetch]:
        found = [each.message for each in self.took() if isinstance(each, Send)]
        return [each for each in found if isinstance(each, ReplicaFetch)]


def replica_of(*epochs: int, synced: bool = True) -> tuple[Partition, SimLog, MembersAround]:
    log, around = SimLog(synced=synced), MembersAround()
    log.append(tuple(Record(epoch, offset) for offset, epoch in enumerate(epochs)))
    log.restart()
    return Partition(PARTITION, TOPIC, log, around, around.ask), log, around


def following(*epochs: int) -> tuple[Partition, SimLog, MembersAround]:
    """A follower of broker 2 in epoch 4."""
    made, log, around = replica_of(*epochs)
    made.take_in(PartitionState(2, 4, (ME, B, C)), 1)
    (fetch,) = around.fetches()
    assert (made.role, fetch.fetch_offset, fetch.synced_end) == (Role.FOLLOWING, len(epochs), len(epochs))
    return made, log, around


def records_written(around: MembersAround) -> list[PartitionState]:
    """States that were to be written."""
    return [decode_state(PARTITION, Node(each.data, Stat(0, 0, 0, 0))) for each in around.written]
