"""The cluster as handlers and the broker's state call it, and the values that both sides name.

`Cluster` (cluster_view.py) implements `ClusterPort` and stands above it. A single-node broker has none, and this module
loads nothing of `edge_broker.cluster`.

Does not contain: answers, decisions.
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
    from edge_broker.cluster.znodes.security_znode import Found
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
    """A topic of the cluster, as clients are told of it; `partitions` has the brokers of each."""

    name: str
    topic_id: uuid.UUID
    partitions: tuple[Replicas, ...]
    config: Mapping[str, str]
    topic: Topic  # as its znode has it


class Order(NamedTuple):
    """What a follower wants of a partition: from `fetch.fetch_offset` on, so many bytes at once."""

    fetch: ReplicaFetch
    topic_id: uuid.UUID
    bytes_max: int


class Connected(Protocol):
    """A broker, as sessions use it."""

    effects: Effects

    def is_connected(self, peer: str) -> bool:
        """Return whether the client ADDRESS:PORT is still connected."""


class Led(Protocol):
    """What this broker leads and holds, as sessions ask for it."""

    @property
    def now_ms(self) -> float:
        """The time that decisions go by."""

    def fetch_from(self, fetch: ReplicaFetch) -> ReplicaFetched:
        """Return what a follower is answered, without the records."""

    def replica(self, partition: PartitionId) -> Replica | None:
        """Return the log of a partition that is held here."""

    def leads(self, partition: PartitionId, leader_epoch: int) -> bool:
        """Return whether this broker leads a partition in this epoch."""

    def led(self, topic: str, partition: int) -> Partition | None:
        """Return the partition, if this broker leads it."""


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

    def session(self, broker: Connected, cluster: Led, replica: int, peer: str) -> FollowerSession:
        """Return the session of a connection, a new one for a new connection."""


class ClusterPort(Protocol):
    """What one member of a cluster knows, and what may be changed of it; all calls come from the loop."""

    member: ClusterMember
    listener: str  # the one for brokers
    entries: LedgerEntries
    contradiction: str  # why this broker can never be a member as it is; empty: nothing is known against it
    images: int  # so many times everything was read
    strays: set[tuple[str, str]]  # topics by name and id on this disk, no deletion of which is known
    on_deleted: Callable[[Sequence[DeletedTopic]], None]
    """Hears of topics that are gone before any request does."""
    on_moved: Callable[[PartitionLog], None]
    """Has those that wait for a log try again."""

    @property
    def fetches(self) -> FollowerSessions:
        """The fetch sessions of followers."""

    # who is there

    @property
    def now_ms(self) -> float:
        """The time that decisions go by."""

    @property
    def serves(self) -> bool:
        """Whether this broker is a member now, and knows what there is."""

    @property
    def knows(self) -> bool:
        """Whether all that there was has been read once."""

    @property
    def not_serving(self) -> str | None:
        """Why nothing of the cluster can be served here, for people; None: it can."""

    @property
    def controller(self) -> int:
        """The id of the controller; NOBODY."""

    @property
    def there(self) -> Collection[int]:
        """The ids of the brokers that are registered."""

    @property
    def partitions_at_most(self) -> int:
        """How many partitions the broker has that has most."""

    def brokers(self, listener: str) -> list[Node]:
        """Return the registered brokers that serve a listener of this name."""

    def serving(self, listener: str) -> Collection[int]:
        """Return the ids of the same."""

    def is_member(self, host: str) -> bool:
        """Return whether a broker is registered with this address."""

    def until(self, look: Callable[[], bool], wait_ms: float, late: Callable[[], None]) -> None:
        """Call `look` at each change until it returns True; `late` where it has not after so many ms."""

    # topics and partitions

    @property
    def topics(self) -> Mapping[str, Topic]:
        """All topics of the cluster, by name."""

    def version(self, name: str) -> int:
        """Return the version of what is known of a topic; -1: nothing is."""

    def described(self, name: str) -> DescribedTopic | None:
        """Return the topic of a name."""

    def described_by_id(self, topic_id: uuid.UUID) -> DescribedTopic | None:
        """Return the topic of an id."""

    def state(self, topic: str, partition: int) -> PartitionState | None:
        """Return leader, leader epoch and ISR of a partition; None: they are not known."""

    def leader(self, topic: str, partition: int) -> int:
        """Return the leader that is registered; NOBODY."""

    def leader_to_ask(self, topic: str, partition: int) -> int:
        """Return the same as clients are told; NOBODY also where its port is closed."""

    def is_there(self, state: PartitionState, broker: int) -> bool:
        """Return whether a broker of the ISR is registered as the ISR names it, and can serve."""

    def is_offline(self, state: PartitionState, broker: int) -> bool:
        """Return whether a registered broker has said that its log is offline."""

    def led(self, topic: str, partition: int) -> Partition | None:
        """Return the partition, if this broker leads it."""

    def epoch_led(self, topic: str, partition: int) -> int | None:
        """Return the leader epoch in which this broker leads a partition; None: it does not."""

    def leads(self, partition: PartitionId, leader_epoch: int) -> bool:
        """Return whether this broker leads a partition in this epoch."""

    def surely_leads(self, topic: str, partition: int) -> bool:
        """Return whether this broker leads a partition, and no other one can have been elected since."""

    def replica(self, partition: PartitionId) -> Replica | None:
        """Return the log of a partition that is held here."""

    def log_end(self, topic: str, partition: int, epoch: int = ...) -> tuple[int, int] | None:
        """Return the last epoch here that is not above this one, and its end; Refusal."""

    def end_here(self, topic: str, partition: int) -> tuple[int, int]:
        """Return the end of what counts as replicated here, and the log's last epoch; Refusal."""

    def latest_offset(self, topic: str, partition: int) -> int | None:
        """Return the end of what readers may see; None: it is not known yet (KIP-207)."""

    def fetch_from(self, fetch: ReplicaFetch) -> ReplicaFetched:
        """Return what a follower is answered, without the records."""

    def not_led(self, topic: str, partition: int) -> Refusal:
        """Return what is answered where this broker does not lead."""

    def spares(self) -> bool:
        """Return whether other replicas have room; see cluster/partition/room.py."""

    def evicts_below(self) -> dict[PartitionLog, int]:
        """Return below which offset logs are evicted for followers on full disks; see cluster/partition/room.py."""

    # writes

    def check_append(self, log: PartitionLog, *, all_in_sync: bool, waits: bool = False) -> None:
        """Refuse what may not be appended now."""

    def left_behind(self, log: PartitionLog, leader_epoch: int) -> Refusal | None:
        """Return why a write of an epoch will not be answered; None: it may be."""

    def late(self, log: PartitionLog) -> Refusal | None:
        """Return why what was appended is not answered in time."""

    def waited_in_vain(self, log: PartitionLog) -> Refusal | None:
        """Return why what was not appended is refused in time."""

    def log_moved(self, log: PartitionLog) -> None:
        """Note that a log was written, or that the disk has confirmed more."""

    # changes; `told` is called on the loop, once

    def take_producer_ids(self, told: Callable[[range | None], None], above: int) -> None:
        """Take a block of producer ids, none below `above`."""

    def share_security(self, told: Callable[[Found], None]) -> None:
        """Have users and ACLs be the cluster's; `told` hears of them whenever they are read."""

    def write_security(self, data: bytes, found: Found, held: Callable[[bool], None]) -> None:
        """Put users and ACLs in place of what was found."""

    def read_security_again(self) -> None:
        """Read again what could not be read."""

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
