"""The one door to a topic or a partition, and who has a topic's name for itself.

| asked for | answered, the first that holds |
|---|---|
| what the session may not do to a topic of this name | INVALID_TOPIC_EXCEPTION, TOPIC_AUTHORIZATION_FAILED |
| a topic that is not there | UNKNOWN_TOPIC_OR_PARTITION, by id UNKNOWN_TOPIC_ID |
| a partition outside the topic's range | UNKNOWN_TOPIC_OR_PARTITION |
| in a cluster, a partition that another broker leads, or none | NOT_LEADER_OR_FOLLOWER |
| in a cluster of which this broker has not read yet what there is, another topic than its own | LEADER_NOT_AVAILABLE |
| another leader epoch than the log's | FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH (KIP-320) |
| a partition whose storage has failed | StorageFault, which is KAFKA_STORAGE_ERROR |

In a cluster its image says which topics exist, on any broker; the store is only asked for the
log of a partition that this broker leads. No client may request a broker's journal of the ledger.

Contains: who may see what. Does not contain: what is done to it then. Source: KIP-320; Kafka's AclOperation.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.broker.context import RequestContext
from edge_broker.broker.effects import Effects
from edge_broker.broker.state.authorization import Rights
from edge_broker.broker.state.ledger_access import Networks, check_writer
from edge_broker.errors import ErrorCode, Refusal
from edge_broker.security.acls import Operation, ResourceType
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.metadata.topic_record import JOURNAL_TOPIC, OFFSETS_TOPIC
from edge_broker.storage.topic import Topic

if TYPE_CHECKING:
    from edge_broker.broker.cluster_port import ClusterPort, ClusterReads, DescribedTopic

    AnyTopic: TypeAlias = Topic | DescribedTopic

INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC})
"""Of which clients write nothing and make none."""
OWN_TOPICS = frozenset({OFFSETS_TOPIC, LEDGER_TOPIC})
"""Reported to clients as internal, so that a pattern such as `.*` subscribes to none of them."""


def metric_name(topic: str) -> str:
    """A topic's name in Kafka's metrics, where a dot is an underscore."""
    return topic.replace(".", "_")


class Topics:
    """The topics of one broker; `ledger_writers` may write to the ledger, as this machine may.

    `changing` holds names of topics that are being made, erased or loaded, `coming` is the number of partitions that
    are being made.
    """

    def __init__(self, store: LogStore, effects: Effects, rights: Rights, ledger_writers: Networks) -> None:
        self.changing: set[str] = set()
        self.coming = 0
        self._store = store
        self._effects = effects
        self._rights = rights
        self._ledger_writers = ledger_writers
        self.cluster: ClusterPort | None = None
        self._open: Mapping[str, Topic] = store.topics if rights.authorizer is None else {}

    @property
    def ledger_batch_bytes_max(self) -> int:
        """The largest batch that the ledger takes; the broker's own where it has none, as it may in a cluster."""
        ledger = self._store.topics.get(LEDGER_TOPIC)
        return (self._store if ledger is None else ledger).settings.message_bytes_max

    def authorize(self, context: RequestContext, name: str, operation: Operation) -> None:
        """Refuse what a session may not do to a topic of this name, whether or not it is there."""
        if self._rights.authorizer is not None and not self._rights.may(context, operation, ResourceType.TOPIC, name):
            raise _not_authorized(context, name, operation)
        if name in OWN_TOPICS:
            self.spare_own(context, name, operation)

    def spare_own(self, context: RequestContext, name: str, operation: Operation) -> None:
        """Refuse an operation on the broker's own topic that no client may do, or not from the session's address."""
        if name not in OWN_TOPICS:
            return
        if operation in (Operation.DELETE, Operation.ALTER, Operation.ALTER_CONFIGS) and self.exists(name):
            raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} belongs to the broker")
        if operation == Operation.WRITE:
            if name in INTERNAL_TOPICS:
                raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is written by the broker alone")
            if not self._rights.is_named(context, operation, ResourceType.TOPIC, name):
                check_writer(self._ledger_writers, context.session.host)

    def topic(self, context: RequestContext, asked: str | uuid.UUID, operation: Operation) -> Topic:
        """The topic of a name or an id, on a single node; Refusal."""
        found = self.find_topic(context, asked, operation)
        assert isinstance(found, Topic), "what lies here of a cluster's topic is asked for by partition"
        return found

    def find_topic(self, context: RequestContext, asked: str | uuid.UUID, operation: Operation) -> AnyTopic:
        """Return the topic of a name or an id, on any broker; Refusal."""
        if isinstance(asked, str):
            self.authorize(context, asked, operation)
            return self.described_there(asked)
        topic = self.by_id(asked)
        self.authorize(context, topic.name, operation)
        return topic

    def by_id(self, topic_id: uuid.UUID) -> AnyTopic:
        """The topic of an id, for a session that is not authorized yet; Refusal."""
        topic: AnyTopic | None = self._store.topics_by_id.get(topic_id)
        if self.cluster is not None:
            self._check_known(self.cluster.view)
            topic = self.cluster.view.describe_by_id(topic_id)
        if topic is None:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id}")
        return topic

    def described_there(self, name: str) -> AnyTopic:
        """Return the topic of a name that the session was authorized for, on any broker; Refusal."""
        if self.cluster is None:
            return self.there(name)
        topic = self.cluster.view.describe(name)
        if topic is None:
            self._check_known(self.cluster.view)
            raise _unknown_topic(name)
        return topic

    @staticmethod
    def _check_known(view: ClusterReads) -> None:
        if not view.knows:
            text = "this broker has not read yet what its cluster has; is ZooKeeper there? try it again"
            raise Refusal(ErrorCode.LEADER_NOT_AVAILABLE, text)

    def there(self, name: str) -> Topic:
        """The topic of a name that the session was authorized for, as it lies here; Refusal."""
        topic = self._store.topics.get(name)
        if topic is None:
            raise _unknown_topic(name)
        return topic

    def partition(
        self,
        context: RequestContext,
        asked: str | uuid.UUID,
        index: int,
        operation: Operation,
        *,
        leader_epoch: int = -1,
    ) -> PartitionLog:
        """The log of a partition; Refusal, StorageFault. `leader_epoch` is what the client knows, -1: nothing."""
        if self.cluster is not None:
            return self._led_partition(self.cluster, context, asked, index, operation, leader_epoch)
        topic = self._open.get(asked) if isinstance(asked, str) and asked not in OWN_TOPICS else None
        if topic is None:  # else the short way, without an authorizer: it is there, and anybody may do anything to it
            topic = self.topic(context, asked, operation)
        partitions = topic.partitions
        if not 0 <= index < len(partitions):
            raise _out_of_range(topic, index)
        return _usable(partitions[index], leader_epoch)

    def _led_partition(
        self,
        cluster: ClusterPort,
        context: RequestContext,
        asked: str | uuid.UUID,
        index: int,
        operation: Operation,
        leader_epoch: int,
    ) -> PartitionLog:
        """As `partition`, of one that this broker leads."""
        short = self._rights.authorizer is None and isinstance(asked, str) and asked not in OWN_TOPICS
        name = str(asked) if short else ""
        if (
            not short or cluster.replicas.led_partition(name, index) is None
        ):  # else it is there, and anybody may do anything to it
            topic = self.find_topic(context, asked, operation)
            name = topic.name
            if not 0 <= index < len(topic.partitions):
                raise _out_of_range(topic, index)
            if cluster.replicas.led_partition(name, index) is None:
                raise cluster.replicas.not_led(name, index)
        log = self._store.log(name, index)
        if log is None:
            raise cluster.replicas.not_led(name, index)
        return _usable(log, leader_epoch)

    def log_of(self, topic: AnyTopic, index: int) -> PartitionLog | None:
        """The log of a partition of a topic that the session was let in to; None: ask `partition` why it is not
        served here.
        """
        if isinstance(topic, Topic):
            return topic.partitions[index] if 0 <= index < len(topic.partitions) else None
        assert self.cluster is not None
        led = 0 <= index < len(topic.partitions) and self.cluster.replicas.led_partition(topic.name, index) is not None
        return self._store.log(topic.name, index) if led else None

    def logs_here(self) -> Iterator[PartitionLog]:
        """Yield this broker's logs of any topic, with any leader; topics may come and go meanwhile."""
        for name in list(self._store.topics):
            topic = self._store.topics.get(name)
            yield from [log for log in topic.partitions if self._is_replica(log)] if topic is not None else ()

    def log_here(self, name: str, index: int) -> PartitionLog | None:
        """Return this broker's log of one partition, with any leader; None: it has none."""
        log = self._store.log(name, index)
        return log if log is not None and self._is_replica(log) else None

    def _is_replica(self, log: PartitionLog) -> bool:
        """Whether a log is more than the place of one: in a cluster a topic has one here for each of its partitions."""
        if self.cluster is None or log.topic == JOURNAL_TOPIC:
            return self.cluster is None
        known = self.cluster.view.describe(log.topic)
        if known is None or log.partition >= len(known.partitions):
            return log.size > 0
        return log.size > 0 or self.cluster.view.member.identity.broker in known.partitions[log.partition]

    def lookup_error(self, context: RequestContext, asked: str, index: int, operation: Operation) -> ErrorCode:
        """Why there is no such partition for this session, or NONE; whether its storage works, and who leads it, does
        not matter.
        """
        try:
            topic = self.find_topic(context, asked, operation)
            if not 0 <= index < len(topic.partitions):
                raise _out_of_range(topic, index)
        except Refusal as refusal:
            return refusal.code
        return ErrorCode.NONE

    def all(self) -> Sequence[AnyTopic]:
        """All topics, on any broker, without a check of permissions."""
        if self.cluster is None:
            return list(self._store.topics.values())
        return [each for name in self.cluster.view.topics if (each := self.cluster.view.describe(name)) is not None]

    def shown_to(self, context: RequestContext, name: str) -> bool:
        """Whether a session may describe a topic that it has not named."""
        return self._rights.may(context, Operation.DESCRIBE, ResourceType.TOPIC, name, noted=False)

    def check_create(self, context: RequestContext, name: str) -> None:
        """Refuse to make a topic of this name for a session that may make neither this nor every topic."""
        if self._rights.authorizer is None:
            return
        if not self._rights.may(context, Operation.CREATE, ResourceType.CLUSTER, noted=False) and not self._rights.may(
            context, Operation.CREATE, ResourceType.TOPIC, name
        ):
            raise _not_authorized(context, name, Operation.CREATE)

    def exists(self, name: str) -> bool:
        """Whether there is a topic of this name, for whom it may be."""
        if self.cluster is None:
            return name in self._store.topics
        return name in self.cluster.view.topics

    def in_metrics(self) -> dict[str, str]:
        """By its name in metrics: each topic that is there, is made or goes."""
        return {metric_name(name): name for name in (*self.changing, *self._names())}

    def _names(self) -> Iterable[str]:
        return self._store.topics if self.cluster is None else self.cluster.view.topics

    def first_taken(self, names: Iterable[str]) -> str | None:
        """The first of these topic names that another request has for itself; None: none."""
        return next((name for name in names if name in self.changing), None)

    def take_names(self, names: Collection[str]) -> None:
        """Have these topic names for oneself: others that need one wait by `AfterName` until `free_names`."""
        assert self.changing.isdisjoint(names), "a name is taken by one at a time"
        self.changing.update(names)

    def free_names(self, names: Collection[str]) -> None:
        """Free names that were taken; the event loop wakes the requests that wait for one."""
        self.changing.difference_update(names)
        self._effects.names_freed(names)


def _usable(log: PartitionLog, leader_epoch: int) -> PartitionLog:
    """The same, unless a client knows another leader epoch, or it is offline."""
    state = log.state
    if leader_epoch not in (-1, state.leader_epoch):
        raise _epoch_refusal(leader_epoch, state.leader_epoch)
    if state.fault is not None:
        raise state.fault.without_frames()
    return log


def _unknown_topic(name: str) -> Refusal:
    return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} does not exist; create it first")


def _out_of_range(topic: AnyTopic, index: int) -> Refusal:
    return Refusal(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"topic {topic.name!r} has {len(topic.partitions)} partitions, none is {index}",
    )


def _not_authorized(context: RequestContext, name: str, operation: Operation) -> Refusal:
    return Refusal(
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        f"{context.session.principal} has no right to {operation.name} topic {name!r}; an administrator may give it",
    )


def _epoch_refusal(known: int, leader_epoch: int) -> Refusal:
    if known < leader_epoch:
        return Refusal(ErrorCode.FENCED_LEADER_EPOCH, "the leader epoch has risen; refresh the metadata")
    return Refusal(ErrorCode.UNKNOWN_LEADER_EPOCH, "the leader epoch is not known here yet")
