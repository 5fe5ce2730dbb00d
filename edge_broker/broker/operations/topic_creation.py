"""Making topics and partitions: the checks and the work that CreateTopics, Metadata and others share.

Contains: what a valid new topic is, and the outcome that makes one, or more partitions of one: on this disk, or in
the cluster (cluster_change.py). Does not contain: the shape of any request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

from edge_broker.broker.broker import Broker
from edge_broker.broker.operations.cluster_change import WAIT_MS, Change, ChangeOfTopic, agree
from edge_broker.broker.operations.local_change import change
from edge_broker.broker.outcomes import AfterName, Outcome
from edge_broker.broker.state.topic_registry import metric_name
from edge_broker.errors import ErrorCode, Refusal
from edge_broker.storage.metadata.topic_config import check_new_config
from edge_broker.storage.metadata.topic_record import OFFSETS_TOPIC, check_topic_name, id_text
from edge_broker.storage.topic import Topic

if TYPE_CHECKING:
    from edge_broker.broker.cluster_port import ClusterPort, Told, TopicDirectory
    from edge_broker.broker.state.topic_registry import AnyTopic

Errors = dict[str, Refusal]
Replicas = tuple[int, ...]
SAFE_FACTOR, SAFE_MIN_IN_SYNC = 3, 2
OFFSETS_FACTOR = "offsets.topic.replication.factor"
MIN_IN_SYNC, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"


class NewTopic(NamedTuple):
    """A topic to be made: `partitions` is at least 1, `config` holds explicitly set topic-level keys.

    `factor` is how many replicas each has; `assigned`, unless it is empty, which brokers hold each partition.
    """

    name: str
    partitions: int
    config: Mapping[str, str]
    factor: int = 1
    assigned: tuple[Replicas, ...] = ()


class _Making(NamedTuple):
    """A topic, and the partitions that it gets. `make`, in a worker, makes them on disk, and returns what shows them.

    StorageFault, Refusal; the log says that the topic `failed`.
    """

    name: str
    partitions: int
    make: Callable[[], Callable[[], None]]
    failed: str


def offsets_topic(broker: Broker) -> NewTopic:
    """How `__consumer_offsets` is made: never left to the kernel, whatever holds for other topics."""
    segment_bytes = broker.config.text("offsets.topic.segment.bytes")
    config = {"cleanup.policy": "compact", "flush.ms": "1000", "segment.bytes": segment_bytes}
    factor = 1 if broker.cluster is None else _offsets_factor(broker, len(broker.cluster.view.broker_ids))
    partitions = broker.config.integer("offsets.topic.num.partitions")
    return NewTopic(OFFSETS_TOPIC, partitions, replicated_config(broker, config, factor), factor)


def _offsets_factor(broker: Broker, there: int) -> int:
    """How many replicas committed offsets get, which may be more than there are: then the topic waits for them.

    It keeps what it is made with, so the board that starts first must not be the only one that ever has it (KIP-115).
    """
    wanted = broker.config.integer(OFFSETS_FACTOR)
    if OFFSETS_FACTOR in broker.config.explicit:
        return wanted
    return max(min(wanted, there), min(wanted, default_factor(broker)))


def automatic_topic(broker: Broker, name: str) -> NewTopic:
    """How a topic is created automatically, on a request for it."""
    if name == OFFSETS_TOPIC:
        return offsets_topic(broker)
    factor = default_factor(broker)
    return NewTopic(name, broker.config.integer("num.partitions"), replicated_config(broker, {}, factor), factor)


def default_factor(broker: Broker) -> int:
    """Replicas of a topic that is made without saying how many."""
    return 1 if broker.cluster is None else broker.config.integer("default.replication.factor")


def replicated_config(broker: Broker, config: Mapping[str, str], factor: int) -> dict[str, str]:
    """A topic's configuration with what it says of replicas, which in a cluster no broker's own keys can say later.

    Brokers may be configured differently, and a leader must go by what its followers go by.
    """
    config = dict(config)
    if broker.cluster is None:
        return config
    told = MIN_IN_SYNC in broker.config.explicit
    safe = SAFE_MIN_IN_SYNC if factor >= SAFE_FACTOR else 1
    min_in_sync = broker.config.integer(MIN_IN_SYNC) if told else safe
    if min_in_sync != 1:
        config.setdefault(MIN_IN_SYNC, str(min_in_sync))
    if broker.config.boolean(UNCLEAN):
        config.setdefault(UNCLEAN, "true")
    return config


def names_in_metrics(broker: Broker) -> Callable[[], Mapping[str, str]]:
    """Facts for check_new_topic, for all topics of one request: the names are gathered once, if at all.

    Another request may add a topic between its steps: `create` checks again.
    """
    return cache(broker.topics.in_metrics)


def check_not_there(broker: Broker, name: str) -> None:
    """Refuse a name that a topic has."""
    if broker.topics.exists(name):
        raise Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic {name!r} already exists.")


def check_new_topic(broker: Broker, topic: NewTopic, room: int, in_metrics: Callable[[], Mapping[str, str]]) -> None:
    """Refuse a topic that exists, is badly named, has a wrong configuration, or more partitions than there is room."""
    check_topic_name(topic.name)
    check_not_there(broker, topic.name)
    if "." in topic.name or "_" in topic.name:
        _check_metric_name(topic.name, in_metrics())
    partitions_max = broker.config.integer("edge.topic.partitions.max")
    if not 1 <= topic.partitions <= partitions_max:
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS, f"{topic.partitions} partitions asked for; 1 to {partitions_max} are allowed"
        )
    check_new_config(topic.config)
    check_replicas(broker, topic.factor, topic.assigned)
    broker.space.check_room(topic.name)
    if topic.partitions > room and topic.name != OFFSETS_TOPIC:
        raise _too_many(topic.partitions)


def check_replicas(broker: Broker, factor: int, assigned: Sequence[Replicas] = (), *, first: int = 0) -> None:
    """Refuse more replicas than there are brokers, and brokers that are not there; `first` is the first partition."""
    if broker.cluster is None:
        return
    if not broker.cluster.view.knows:
        text = "this broker has not read yet what its cluster has; is ZooKeeper there? try it again"
        raise Refusal(ErrorCode.NOT_CONTROLLER, text)
    there = broker.cluster.view.broker_ids
    for number, replicas in enumerate(assigned, first):
        if not replicas or len(set(replicas)) != len(replicas) or len(replicas) != factor:
            raise Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"partition {number} is assigned to brokers {list(replicas)}; name as many for each, and each once",
            )
        if not set(replicas) <= set(there):
            raise Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"partition {number} is assigned to brokers {list(replicas)}; those that are there: {sorted(there)}",
            )
    if not 1 <= factor <= len(there):
        raise _too_few_brokers(factor, len(there))


def _too_few_brokers(factor: int, there: int) -> Refusal:
    return Refusal(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"replication factor {factor} with {there} brokers that are there; 1 to {there} are possible",
    )


def create(
    broker: Broker,
    topics: Sequence[NewTopic],
    retry: Callable[[], Outcome],
    then: Callable[[Errors], Outcome],
    timeout_ms: int = WAIT_MS,
) -> Outcome:
    """Make topics, then show them; `then` gets the refusals by name. `timeout_ms` is what a cluster has for it.

    When another request is making or erasing one of them, `retry` is called once that is over. The names are free
    again however the making ends. The checks of earlier steps are repeated: another request may be quicker.
    """
    taken = broker.topics.first_taken(topic.name for topic in topics)
    if taken is not None:
        return AfterName(taken, retry)
    errors: Errors = {}
    making: list[NewTopic] = []
    room, in_metrics = room_for_partitions(broker), broker.topics.in_metrics()
    for topic in topics:
        try:
            check_not_there(broker, topic.name)
            _check_metric_name(topic.name, in_metrics)
            if topic.partitions > room and topic.name != OFFSETS_TOPIC:
                raise _too_many(topic.partitions)
        except Refusal as refusal:
            errors[topic.name] = refusal.without_frames()
        else:
            room -= topic.partitions
            in_metrics[metric_name(topic.name)] = topic.name
            making.append(topic)
    if broker.cluster is not None:
        changes = [_NewInCluster(broker, topic) for topic in making]
        return agree(broker, changes, lambda failed: then(errors | failed), timeout_ms)
    pieces = [_Making(one.name, one.partitions, _making_topic(broker, one), "could not be made") for one in making]
    return _make(broker, pieces, errors, then)


class _NewInCluster(Change):
    """A topic of the cluster to be made: it holds once this broker can tell who leads each partition."""

    def __init__(self, broker: Broker, new: NewTopic) -> None:
        super().__init__(new.name)
        self._new, self._new_uuid = new, broker.clock.new_uuid
        self._ids: set[str] = set()  # one of each time that it was asked for: one that is gone is never used again

    def ask(self, cluster: ClusterPort, told: Told) -> None:
        """As Change."""
        new, topic_id = self._new, id_text(self._new_uuid())
        self._ids.add(topic_id)
        try:
            topic = cluster.changes.place(topic_id, new.partitions, new.factor, new.config)
        except ValueError:  # a broker has gone since the check
            raise _too_few_brokers(new.factor, len(cluster.view.broker_ids)) from None
        cluster.changes.make_topic(new.name, topic._replace(replicas=new.assigned or topic.replicas), told)

    def holds(self, view: TopicDirectory) -> bool:
        """As Change."""
        topic = view.topics.get(self.name)
        return topic is not None and topic.topic_id in self._ids and _is_known(view, self.name, self._new.partitions)


def _is_known(view: TopicDirectory, name: str, partitions: int) -> bool:
    return all(view.state(name, number) is not None for number in range(partitions))


def _making_topic(broker: Broker, new: NewTopic) -> Callable[[], Callable[[], None]]:
    def make() -> Callable[[], None]:
        store = broker.store
        return partial(
            store.add_topic,
            store.topic_files.make_topic(new.name, new.partitions, dict(new.config), broker.clock.new_uuid()),
        )

    return make


class MorePartitions(NamedTuple):
    """How many partitions a topic is to have; `assigned`, unless it is empty, says which brokers hold the new ones."""

    in_all: int
    assigned: tuple[Replicas, ...] = ()


def check_more_partitions(broker: Broker, topic: AnyTopic, count: int) -> None:
    """Refuse a number of partitions that a topic cannot have."""
    have, partitions_max = len(topic.partitions), broker.config.integer("edge.topic.partitions.max")
    if count <= have:
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS, f"topic {topic.name!r} has {have} partitions; {count} would be no more"
        )
    if count > partitions_max:
        raise Refusal(ErrorCode.INVALID_PARTITIONS, f"{count} partitions asked for; {partitions_max} are allowed")
    _check_unknown_to_zookeeper(broker, topic, count)
    if isinstance(topic, Topic) and not any(log.may_come_online for log in topic.partitions):
        raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"topic {topic.name!r} could not be opened, so nothing is added")
    broker.space.check_room(topic.name)


def _check_unknown_to_zookeeper(broker: Broker, topic: AnyTopic, count: int) -> None:
    """Refuse to make a partition again that this disk has with records: its new leader epochs would begin at 0."""
    here = broker.store.topics.get(topic.name)
    if isinstance(topic, Topic) or here is None or here.topic_id != topic.topic_id:
        return
    for log in here.partitions[len(topic.partitions) : count]:
        if log.size:
            raise Refusal(
                ErrorCode.INVALID_PARTITIONS,
                f"{topic.name}-{log.partition} has records on this broker's disk, and ZooKeeper does not know it; "
                "put a newer copy of the ensemble's data back",
            )


def add_partitions(
    broker: Broker,
    wanted: Mapping[str, MorePartitions],
    retry: Callable[[], Outcome],
    then: Callable[[Errors], Outcome],
    timeout_ms: int = WAIT_MS,
) -> Outcome:
    """Give topics more partitions, then show them; as `create`."""
    taken = broker.topics.first_taken(wanted)
    if taken is not None:
        return AfterName(taken, retry)
    errors: Errors = {}
    growing: list[tuple[AnyTopic, MorePartitions]] = []
    room = room_for_partitions(broker)
    for name, asked in wanted.items():
        try:
            topic = broker.topics.described_there(name)
            check_more_partitions(broker, topic, asked.in_all)
            more = asked.in_all - len(topic.partitions)
            if more > room:
                raise _too_many(more)
        except Refusal as refusal:
            errors[name] = refusal.without_frames()
        else:
            room -= more
            growing.append((topic, asked))
    if broker.cluster is not None:
        changes = [_MoreInCluster(topic.name, id_text(topic.topic_id), asked) for topic, asked in growing]
        return agree(broker, changes, lambda failed: then(errors | failed), timeout_ms)
    making = [_growing(broker, topic, asked.in_all) for topic, asked in growing if isinstance(topic, Topic)]
    return _make(broker, making, errors, then)


def _growing(broker: Broker, topic: Topic, count: int) -> _Making:
    more = count - len(topic.partitions)
    return _Making(topic.name, more, _making_partitions(broker, topic, count), "got no more partitions")


class _MoreInCluster(ChangeOfTopic):
    """More partitions of a topic of the cluster: they hold once this broker can tell who leads each."""

    def __init__(self, name: str, topic_id: str, asked: MorePartitions) -> None:
        super().__init__(name, topic_id)
        self._wanted = asked

    def ask(self, cluster: ClusterPort, told: Told) -> None:
        """As Change."""
        topic, (count, assigned) = self.there(cluster.view), self._wanted
        if assigned and count - len(topic.replicas) != len(assigned):
            raise Refusal(ErrorCode.INVALID_PARTITIONS, f"topic {self.name!r} has got more partitions meanwhile")
        try:
            grown = cluster.changes.place_more(self.name, count)
        except ValueError:
            raise _too_few_brokers(len(topic.replicas[0]), len(cluster.view.broker_ids)) from None
        if assigned:
            grown = grown._replace(replicas=(*topic.replicas, *assigned))
        cluster.changes.change_topic(self.name, grown, told)

    def holds(self, view: TopicDirectory) -> bool:
        """As Change."""
        topic, count = self.topic_in(view), self._wanted.in_all
        return topic is not None and len(topic.replicas) >= count and _is_known(view, self.name, count)


def _making_partitions(broker: Broker, topic: Topic, count: int) -> Callable[[], Callable[[], None]]:
    def make() -> Callable[[], None]:
        return partial(broker.store.add_partitions, topic, broker.store.topic_files.make_partitions(topic, count))

    return make


def _make(broker: Broker, making: Sequence[_Making], errors: Errors, then: Callable[[Errors], Outcome]) -> Outcome:
    """Have it made by the worker, with the names taken; what fails joins `errors`."""
    if not making:
        return then(errors)
    coming = sum(one.partitions for one in making)
    broker.topics.coming += coming

    def over() -> None:
        broker.topics.coming -= coming

    def show(made: dict[_Making, Callable[[], None] | Refusal]) -> Outcome:
        for one, shows in made.items():
            if not isinstance(shows, Refusal):
                shows()
                continue
            errors[one.name] = shows
            if shows.code == ErrorCode.KAFKA_STORAGE_ERROR:
                broker.effects.note(f"topic {one.name} {one.failed}: {shows.message}")
        return then(errors)

    return change(broker, [one.name for one in making], {one: one.make for one in making}, show, over)


def _check_metric_name(name: str, in_metrics: Mapping[str, str]) -> None:
    other = in_metrics.get(metric_name(name), name)
    if other != name:
        raise Refusal(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic {name!r} differs from {other!r} in nothing but '.' and '_', which are one in metrics' names",
        )


def _too_many(partitions: int) -> Refusal:
    reason = f"{partitions} partitions more than edge.partitions.max allows; delete topics or raise it"
    return Refusal(ErrorCode.POLICY_VIOLATION, reason)


def room_for_partitions(broker: Broker) -> int:
    """How many more partitions there may be: each takes memory and file descriptors."""
    if broker.cluster is not None:  # a new one may come to the broker that has most
        return broker.config.integer("edge.partitions.max") - broker.cluster.view.partitions_at_most
    known = sum(len(topic.partitions) for topic in broker.store.topics.values())
    return broker.config.integer("edge.partitions.max") - known - broker.topics.coming
