"""The groups of this broker: which coordinator has a group, and who waits for one.

A group lives in one partition of `__consumer_offsets`, and so in that partition's coordinator. Coordinators come and go
as one: with the partition's offsets loaded, or because it is served elsewhere.

| a partition of `__consumer_offsets` | its groups are answered |
|---|---|
| there is no such topic | NOT_COORDINATOR: FindCoordinator makes it |
| is being loaded, or will be | COORDINATOR_LOAD_IN_PROGRESS |
| could not be loaded | COORDINATOR_NOT_AVAILABLE |
| is loaded, or was made since the start | by its coordinator |

In a cluster a coordinator lives with the leader of its partition, for one leader epoch:

| in a cluster, a partition | its groups are answered |
|---|---|
| that is not led here | NOT_COORDINATOR: FindCoordinator names who leads it |
| that is led here, in an epoch that is not loaded | COORDINATOR_LOAD_IN_PROGRESS |
| whose offsets could not be loaded | COORDINATOR_NOT_AVAILABLE |
| that is loaded in the epoch in which it is led | by its coordinator |
| the same, while another one may have been elected | the same, but for what is committed: NOT_COORDINATOR |

Contains: the tables, and the requests that wait. Does not contain: rules of groups (coordinator), records and
their sync (operations/groups/group_log.py), loading (operations/groups/group_loading.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_broker.configuration.config import BrokerConfig
from edge_broker.coordinator.group_coordinator import GroupCoordinator
from edge_broker.coordinator.group_memory_limit import Room
from edge_broker.coordinator.group_requests import NO_EPOCH, STEADY, ClockLead, GroupSettings
from edge_broker.coordinator.offset_records import OffsetKey
from edge_broker.errors import ErrorCode, Refusal
from edge_broker.protocol.message import Message
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.metadata.topic_record import OFFSETS_TOPIC

if TYPE_CHECKING:
    from edge_broker.broker.cluster_port import ClusterPort, LedPartitions


DELETED_KEPT = 1000


class ParkedRequest(NamedTuple):
    """A request that waits for a group; `translate` turns the group's result into the response that it wants."""

    group_id: str
    translate: Callable[[Any], Message | None]


class Groups:
    """Coordinators by their partition, owned by the loop; `parked` has the requests that wait, by token."""

    def __init__(
        self, config: BrokerConfig, store: LogStore, is_connected: Callable[[str], bool], clock_lead: ClockLead = STEADY
    ) -> None:
        self.settings = group_settings(config)
        self.parked: dict[int, ParkedRequest] = {}
        self.faults: dict[int, str] = {}
        """Why a partition's offsets could not be loaded."""
        self.cluster: ClusterPort | None = None
        self.unburied: list[tuple[GroupCoordinator, list[OffsetKey]]] = []
        """Offsets of deleted topics whose tombstones could not be written."""
        self.again_ms = 0  # when what failed in a cluster is retried
        self._deleted: dict[str, None] = {}  # names of topics that this broker saw go
        self._deleted_meanwhile: dict[int, set[str]] = {}  # by partition that is being loaded
        self._store = store
        self._loaded: dict[int, GroupCoordinator] = {}
        self._loading: dict[int, int] | None = None  # by partition, the leader epoch; None: not begun
        self._room = Room(self.settings.groups_bytes_max, is_connected)
        self._clock_lead = clock_lead

    @property
    def partitions(self) -> int:
        """How many partitions `__consumer_offsets` has, here or elsewhere; 0: there is no such topic."""
        if self.cluster is not None:
            known = self.cluster.view.topics.get(OFFSETS_TOPIC)
            return 0 if known is None else len(known.replicas)
        topic = self._store.topics.get(OFFSETS_TOPIC)
        return 0 if topic is None else len(topic.partitions)

    @property
    def are_loaded(self) -> bool:
        """Whether nothing is left to load."""
        return not self._loading and (self._loading is not None or self.cluster is not None)

    @property
    def fault(self) -> str | None:
        """Why some groups are not served; None: all are."""
        return next(iter(self.faults.values()), None)

    def load(self, partitions: Sequence[int]) -> None:
        """These partitions are about to be loaded; any other that there will be is new and empty."""
        self._loading = (self._loading or {}) | dict.fromkeys(partitions, NO_EPOCH)

    # in a cluster

    def lead(self, partition: int, epoch: int) -> GroupCoordinator | None:
        """A partition is led here from now on, and about to be loaded; the coordinator of before is the caller's to
        stop.
        """
        former = self.resign(partition)
        self._deleted_meanwhile.pop(partition, None)
        self._loading = {**(self._loading or {}), partition: epoch}
        return former

    def resign(self, partition: int) -> GroupCoordinator | None:
        """A partition is not led here any more; its coordinator, which is dropped, is the caller's to stop."""
        former = self._loaded.get(partition)
        self._drop(partition)
        return former

    def is_loading(self, partition: int, epoch: int) -> bool:
        """Whether a partition is being loaded for this epoch, and for no later one."""
        return self._loading is not None and self._loading.get(partition) == epoch

    def is_loaded(self, partition: int, epoch: int) -> bool:
        """Whether a partition's coordinator is one of this epoch."""
        return partition in self._loaded and self._loaded[partition].epoch == epoch

    def log_for(self, partition: int, epoch: int) -> PartitionLog:
        """Where records go that a coordinator of this epoch has made.

        Refusal NOT_LEADER_OR_FOLLOWER where that one is dropped: what it knows may be old.
        """
        if self.cluster is None:
            return self._store.topics[OFFSETS_TOPIC].partitions[partition]
        log = self._store.log(OFFSETS_TOPIC, partition)
        served = self._unready(partition) == ErrorCode.NONE and self.is_loaded(partition, epoch)
        if log is None or not served:
            text = f"this broker does not lead {OFFSETS_TOPIC}-{partition} in epoch {epoch}; look for the coordinator"
            raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, text)
        return log

    def note_deleted(self, names: Sequence[str], seen: Sequence[str]) -> None:
        """Topics of these names are gone; those that were `seen` to go count for partitions that are led here later."""
        for partition in self._loading or ():
            self._deleted_meanwhile.setdefault(partition, set()).update(names)
        for name in seen:
            self._deleted.pop(name, None)
            self._deleted[name] = None
        for name in list(self._deleted)[: max(0, len(self._deleted) - DELETED_KEPT)]:
            del self._deleted[name]

    def take_deleted(self, partition: int) -> set[str]:
        """Offsets of deleted topics that a partition may have that was just loaded."""
        assert self.cluster is not None
        gone = {name for name in self._deleted if name not in self.cluster.view.topics}
        return gone | self._deleted_meanwhile.pop(partition, set())

    # loading

    def serve(self, partition: int, loaded: GroupCoordinator) -> None:
        """Answer for the groups of a partition from now on."""
        self._drop(partition)
        loaded.move(self._room)
        loaded.clock_lead = self._clock_lead
        self._loaded[partition] = loaded

    def fail(self, partition: int, reason: str) -> None:
        """A partition's offsets could not be loaded."""
        self._drop(partition)
        self.faults[partition] = reason

    def _drop(self, partition: int) -> None:
        """Forget all of a partition's groups as one."""
        if self._loading is not None:
            self._loading.pop(partition, None)
        self.faults.pop(partition, None)
        dropped = self._loaded.pop(partition, None)
        if dropped is not None:
            self._room.coordinators.remove(dropped)

    def unready(self, group_id: str) -> ErrorCode:
        """Why this group cannot be served just now, or NONE: then `of` has its coordinator."""
        count = self.partitions
        return self._unready(partition_for(group_id, count)) if count else ErrorCode.NOT_COORDINATOR

    def unready_to_tell(self, group_id: str) -> ErrorCode:
        """As `unready`, of what was committed: who is cut off may know old offsets, and sends clients elsewhere."""
        error, cluster = self.unready(group_id), self.cluster
        if error == ErrorCode.NONE and cluster is not None:
            partition = partition_for(group_id, self.partitions)
            return (
                ErrorCode.NONE if cluster.replicas.surely_leads(OFFSETS_TOPIC, partition) else ErrorCode.NOT_COORDINATOR
            )
        return error

    def _unready(self, partition: int) -> ErrorCode:
        if self.cluster is not None:
            return self._unready_in(self.cluster.replicas, partition)
        if partition in self._loaded:
            return ErrorCode.NONE
        if self._loading is None or partition in self._loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if partition in self.faults else ErrorCode.NONE

    def any_unready(self) -> ErrorCode:
        """The first reason why some group that is this broker's to serve cannot be served, or NONE."""
        if self.cluster is not None and not self.cluster.view.serves:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE  # their coordinator is unknown
        unready = map(self._unready, range(self.partitions))
        return next((one for one in unready if one not in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR)), ErrorCode.NONE)

    def _unready_in(self, replicas: LedPartitions, partition: int) -> ErrorCode:
        epoch = replicas.epoch_led(OFFSETS_TOPIC, partition)
        if epoch is None:
            return ErrorCode.NOT_COORDINATOR
        if self.is_loaded(partition, epoch):
            return ErrorCode.NONE
        failed = partition in self.faults
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if failed else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def of(self, group_id: str) -> GroupCoordinator:
        """The coordinator of a group that is not `unready`, as of this step: in a cluster it may go between two."""
        partition = partition_for(group_id, self.partitions)
        if partition not in self._loaded:  # made since the start
            assert self.cluster is None, "in a cluster no coordinator is made but from the log"
            self.serve(partition, GroupCoordinator(self.settings, partition))
        return self._loaded[partition]

    @property
    def coordinators(self) -> list[GroupCoordinator]:
        """All that are loaded."""
        return list(self._loaded.values())

    def committed_offset(self, group_id: str, topic: str, partition: int) -> int | None:
        """The offset that a group has committed for a partition of a topic; None: none is known."""
        count = self.partitions
        coordinator = self._loaded.get(partition_for(group_id, count)) if count else None
        committed = None if coordinator is None else coordinator.offsets.get(group_id, topic, partition)
        return None if committed is None else committed.offset

    def set_clock_lead(self, clock_lead: ClockLead) -> None:
        """The clocks that are not steady are so far ahead."""
        self._clock_lead = clock_lead
        for coordinator in self._loaded.values():
            coordinator.clock_lead = clock_lead

    def abandon(self, token: int, now_ms: int) -> None:
        """No request waits for this token any more."""
        parked = self.parked.pop(token, None)
        if parked is not None and self.unready(parked.group_id) == ErrorCode.NONE:
            self.of(parked.group_id).forget(parked.group_id, token, now_ms)


def group_settings(config: BrokerConfig) -> GroupSettings:
    """The configured bounds."""
    return GroupSettings(
        min_session_timeout_ms=config.integer("group.min.session.timeout.ms"),
        max_session_timeout_ms=config.integer("group.max.session.timeout.ms"),
        initial_rebalance_delay_ms=config.integer("group.initial.rebalance.delay.ms"),
        group_size_max=config.integer("group.max.size"),
        offset_metadata_max=config.integer("offset.metadata.max.bytes"),
        group_bytes_max=config.integer("message.max.bytes"),
    )


def partition_for(group_id: str, partitions: int) -> int:
    """The partition that keeps a group, chosen as Kafka does: Java's String.hashCode without its sign, modulo."""
    if partitions == 1:
        return 0
    value = 0
    data = group_id.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        value = (31 * value + (data[at] << 8 | data[at + 1])) & 0xFFFFFFFF
    return (value & 0x7FFFFFFF) % partitions
