"""The cluster as handlers and the broker's state call it, and the values that both sides name.

| Protocol | its users |
|---|---|
| `BrokerDirectory`, `TopicDirectory`, `ClusterReads` | metadata, configs, checks of a change |
| `LedPartitions` | handlers that serve a partition, group coordinators |
| `AppendGate` | writes |
| `ReplicationPort` | the broker's logs, followers' fetches |
| `TopicChanges`, `ProducerIdBlocks`, `SecurityPort` | what changes the cluster |
| `ChangeWaits` | requests that wait until a change is known |
| `ClusterPort` | the broker, which has all of these |

`Cluster` (cluster/cluster.py) implements `ClusterPort` and stands above it. A single-node broker has none, and this
module loads nothing of `edge_broker.cluster`. Does not contain: answers, decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from edge_broker.errors import ErrorCode

if TYPE_CHECKING:
    import uuid

    from edge_broker.broker.effects import Effects
    from edge_broker.broker.known_entries import LedgerEntries
    from edge_broker.broker.outcomes import Outcome
    from edge_broker.cluster.inter_broker_messages import ReplicaFetch, ReplicaFetched
    from edge_broker.cluster.member import ClusterMember
    from edge_broker.cluster.partition.partition import Partition
    from edge_broker.cluster.state.cluster_state import PartitionId, PartitionState, Topic
    from edge_broker.cluster.state.placement import Replicas
    from edge_broker.cluster.znodes.metadata_image import DeletedTopic
    from edge_broker.cluster.znodes.security_znode import NodeReading
    from edge_broker.configuration.config import Endpoint
    from edge_broker.errors import Refusal
    from edge_broker.storage.log.partition_log import PartitionLog
    from edge_broker.storage.replica.replica_log import Replica

NOBODY = -1

Told = Callable[[ErrorCode], None]


class Node(NamedTuple):
    """A broker that is there, by its address for clients of one listener."""

    broker: int
    endpoint: Endpoint
    rack: str | None


class DescribedTopic(NamedTuple):
    """A topic of the cluster, as responses describe it; `partitions` has the brokers of each."""

    name: str
    topic_id: uuid.UUID
    partitions: tuple[Replicas, ...]
    config: Mapping[str, str]
    topic: Topic  # as its znode has it


class Order(NamedTuple):
    """A follower's request for a partition: from `fetch.fetch_offset` on, so many bytes at once."""

    fetch: ReplicaFetch
    topic_id: uuid.UUID
    bytes_max: int


class SessionBroker(Protocol):
    """A broker, as sessions use it."""

    effects: Effects

    def is_connected(self, peer: str) -> bool:
        """Return whether the client ADDRESS:PORT is still connected."""


class BrokerDirectory(Protocol):
    """The brokers of the cluster, and whether this one is a member."""

    listener: str  # the one for brokers
    contradiction: str  # why this broker can never be a member as it is; empty: nothing is known against it
    strays: set[tuple[str, str]]  # topics by name and id on this disk, no deletion of which is known
    images: int  # complete images read so far

    @property
    def now_ms(self) -> float:
        """The time that decisions go by."""

    @property
    def serves(self) -> bool:
        """Whether this broker is a member now, and knows the cluster's topics."""

    @property
    def knows(self) -> bool:
        """Whether a complete image was read once."""

    @property
    def not_serving(self) -> str | None:
        """Why nothing of the cluster can be served here, for people; None: it can."""

    @property
    def controller(self) -> int:
        """The id of the controller; NOBODY."""

    @property
    def broker_ids(self) -> Collection[int]:
        """The ids of the registered brokers."""

    @property
    def partitions_at_most(self) -> int:
        """The number of partitions of the broker that has most."""

    def brokers(self, listener: str) -> list[Node]:
        """Return the registered brokers that serve a listener of this name."""

    def serving(self, listener: str) -> Collection[int]:
        """Return the ids of the same."""

    def is_member(self, host: str) -> bool:
        """Return whether a broker is registered with this address."""


class TopicDirectory(Protocol):
    """The topics of the cluster, and the state of each partition."""

    @property
    def topics(self) -> Mapping[str, Topic]:
        """All topics of the cluster, by name."""

    def version(self, name: str) -> int:
        """Return the version of a topic's znode as it was read; -1: none was."""

    def describe(self, name: str) -> DescribedTopic | None:
        """Return the topic of a name."""

    def describe_by_id(self, topic_id: uuid.UUID) -> DescribedTopic | None:
        """Return the topic of an id."""

    def state(self, topic: str, partition: int) -> PartitionState | None:
        """Return leader, leader epoch and ISR of a partition; None: they are not known."""

    def leader(self, topic: str, partition: int) -> int:
        """Return the leader if it is registered, or NOBODY."""

    def leader_to_ask(self, topic: str, partition: int) -> int:
        """Return the leader that clients are sent to, or NOBODY, as where its port is closed."""

    def is_there(self, state: PartitionState, broker: int) -> bool:
        """Return whether a broker of the ISR is registered as the ISR names it, and can serve."""

    def is_offline(self, state: PartitionState, broker: int) -> bool:
        """Return whether a registered broker has reported that its log is offline."""


class ClusterReads(BrokerDirectory, TopicDirectory, Protocol):
    """Both, and the member itself for figures and health."""

    @property
    def member(self) -> ClusterMember:
        """The member whose knowledge this is."""


class LedPartitions(Protocol):
    """This broker's replicas, and which of them lead."""

    def led_partition(self, topic: str, partition: int) -> Partition | None:
        """Return the partition, if this broker leads it."""

    def epoch_led(self, topic: str, partition: int) -> int | None:
        """Return the leader epoch in which this broker leads a partition; None: it does not."""

    def leads(self, partition: PartitionId, leader_epoch: int) -> bool:
        """Return whether this broker leads a partition in this epoch."""

    def surely_leads(self, topic: str, partition: int) -> bool:
        """Return whether this broker leads a partition, and its lease excludes a newer leader."""

    def replica(self, partition: PartitionId) -> Replica | None:
        """Return the log of a partition that is held here."""

    def log_end(self, topic: str, partition: int, epoch: int = ...) -> tuple[int, int] | None:
        """Return the last epoch here that is not above this one, and its end; Refusal."""

    def end_here(self, topic: str, partition: int) -> tuple[int, int]:
        """Return the end of what counts as replicated here, and the log's last epoch; Refusal."""

    def latest_offset(self, topic: str, partition: int) -> int | None:
        """Return the end of what readers may see; None: it is not known yet (KIP-207)."""

    def not_led(self, topic: str, partition: int) -> Refusal:
        """Return the refusal of a request to a partition that another broker leads, or none."""


class AppendGate(Protocol):
    """Admission of writes to replicated partitions."""

    def check_append(self, log: PartitionLog, *, all_in_sync: bool, waits: bool = False) -> None:
        """Refuse what may not be appended now."""

    def refuse_old_epoch(self, log: PartitionLog, leader_epoch: int) -> Refusal | None:
        """Return why a write of an epoch is not acknowledged; None: it may be."""

    def refuse_expired(self, log: PartitionLog) -> Refusal | None:
        """Return why a write expired after its append."""

    def refuse_unproved(self, log: PartitionLog) -> Refusal | None:
        """Return why a write expired before its append."""


class FetchSource(Protocol):
    """The leader's side of followers' fetches."""

    @property
    def now_ms(self) -> float:
        """The time that deadlines go by."""

    def fetch_from(self, fetch: ReplicaFetch, *, is_new: bool = True) -> ReplicaFetched:
        """Return the response to a follower's fetch, without the records.

        Not `is_new`: the fetch waits and is evaluated again, so it reports nothing new of the follower.
        """


class FollowerSession(Protocol):
    """The fetch session of one follower's connection."""

    def begin(self) -> None:
        """Forget all orders: the follower starts a session."""

    def take(self, order: Order) -> None:
        """Accept what the follower orders of one partition."""

    def refuse(self, topic_id: uuid.UUID, index: int, name: str, error: ErrorCode) -> None:
        """Answer one partition with an error."""

    def outcome(self, token: int, wait_ms: float) -> Outcome:
        """Return the response, or what waits for one."""


class FollowerSessions(Protocol):
    """The fetch sessions of all followers."""

    def session(
        self, broker: SessionBroker, replicas: LedPartitions, source: FetchSource, replica: int, peer: str
    ) -> FollowerSession:
        """Return the session of a connection, a new one for a new connection."""


class ReplicationPort(FetchSource, Protocol):
    """Progress of this broker's logs, and space on the brokers' disks."""

    @property
    def fetches(self) -> FollowerSessions:
        """The fetch sessions of followers."""

    def log_moved(self, log: PartitionLog) -> None:
        """Note that a log was written, or that the disk has confirmed more."""

    def has_spare_replicas(self) -> bool:
        """Return whether other replicas have space; see cluster/partition/room.py."""

    def eviction_offsets(self) -> dict[PartitionLog, int]:
        """Return below which offset logs are evicted for followers on full disks; see cluster/partition/room.py."""


class TopicChanges(Protocol):
    """Changes of topics; `told` is called on the loop, once."""

    def place(self, topic_id: str, partitions: int, factor: int, config: Mapping[str, str]) -> Topic:
        """Return a topic whose replicas are placed; ValueError: too few brokers are registered."""

    def place_more(self, name: str, partitions: int) -> Topic:
        """Return a topic with so many partitions in all; ValueError."""

    def make_topic(self, name: str, topic: Topic, told: Told) -> None:
        """Make a topic whose replicas are placed."""

    def change_topic(self, name: str, topic: Topic, told: Told) -> None:
        """Give a topic another configuration or more partitions."""

    def delete_topic(self, name: str, told: Told) -> None:
        """Delete a topic."""

    def elect(self, topic: str, partition: int) -> ErrorCode:
        """Request that the preferred leader leads."""


class ProducerIdBlocks(Protocol):
    """Blocks of producer ids, each given to one broker."""

    def take_producer_ids(self, told: Callable[[range | None], None], above: int) -> None:
        """Take a block of producer ids, none below `above`; `told` is called on the loop, once."""


class ChangesPort(TopicChanges, ProducerIdBlocks, Protocol):
    """Both kinds of changes."""


class SecurityPort(Protocol):
    """The znode of users and ACLs."""

    def share(self, on_read: Callable[[NodeReading], None]) -> None:
        """Have users and ACLs be the cluster's; `on_read` gets them whenever they are read."""

    def write(self, data: bytes, found: NodeReading, held: Callable[[bool], None]) -> None:
        """Replace what was found; `held` is called once it is certain whether the write holds."""

    def read_again(self) -> None:
        """Read again what could not be read."""


class ChangeWaits(Protocol):
    """Conditions that requests wait for."""

    def until(self, is_met: Callable[[], bool], wait_ms: float, on_expired: Callable[[], None]) -> None:
        """Call `is_met` at each change until it returns True; `on_expired` if it has not after so many ms."""


class ClusterPort(Protocol):
    """The parts of one member of a cluster; all calls come from the loop."""

    on_deleted: Callable[[Sequence[DeletedTopic]], None]
    """Hears of topics that are gone before any request does."""
    on_moved: Callable[[PartitionLog], None]
    """Has those that wait for a log try again."""
    entries: LedgerEntries

    @property
    def view(self) -> ClusterReads:
        """The brokers, topics and partition states."""

    @property
    def replicas(self) -> LedPartitions:
        """This broker's own partitions."""

    @property
    def gate(self) -> AppendGate:
        """The admission of writes."""

    @property
    def replication(self) -> ReplicationPort:
        """The progress of logs, and followers' fetches."""

    @property
    def changes(self) -> ChangesPort:
        """The changes of topics, elections, producer ids."""

    @property
    def security(self) -> SecurityPort:
        """The znode of users and ACLs."""

    @property
    def waits(self) -> ChangeWaits:
        """The conditions that requests wait for."""
