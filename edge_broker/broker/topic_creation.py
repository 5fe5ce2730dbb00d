"""Making topics and partitions: the checks and the work that CreateTopics, Metadata and others share.

Lives here: what a valid new topic is, and the outcome that makes one, or more partitions of one. Must never come in:
the shape of any request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from edge_broker.broker.broker import Broker
from edge_broker.broker.outcome import Behind, Do, Outcome
from edge_broker.errors import ErrorCode, Refusal, StorageFault
from edge_broker.storage.log import PartitionLog
from edge_broker.storage.store import Topic
from edge_broker.storage.topic_config import check_config_size, check_topic_config
from edge_broker.storage.topics import OFFSETS_TOPIC, check_topic_name

Errors = dict[str, Refusal]


class NewTopic(NamedTuple):
    """A topic to be made: `partitions` is at least 1, `config` holds explicitly set topic-level keys."""

    name: str
    partitions: int
    config: Mapping[str, str]


def offsets_topic(broker: Broker) -> NewTopic:
    """How `__consumer_offsets` is made: never left to the kernel, whatever holds for other topics."""
    segment_bytes = broker.config.text("offsets.topic.segment.bytes")
    config = {"cleanup.policy": "compact", "flush.ms": "1000", "segment.bytes": segment_bytes}
    return NewTopic(OFFSETS_TOPIC, broker.config.integer("offsets.topic.num.partitions"), config)


def automatic_topic(broker: Broker, name: str) -> NewTopic:
    """How a topic is made that somebody merely asked for."""
    if name == OFFSETS_TOPIC:
        return offsets_topic(broker)
    return NewTopic(name, broker.config.integer("num.partitions"), {})


def check_new_topic(broker: Broker, topic: NewTopic) -> None:
    """Refuse a topic that exists, is badly named, has too many partitions or a wrong configuration."""
    check_topic_name(topic.name)
    if broker.topics.exists(topic.name):
        raise Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic {topic.name!r} already exists.")
    partitions_max = broker.config.integer("edge.topic.partitions.max")
    if not 1 <= topic.partitions <= partitions_max:
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS, f"{topic.partitions} partitions asked for; 1 to {partitions_max} are allowed"
        )
    check_config_size(topic.config)
    check_topic_config(topic.config)
    broker.space.check_room(topic.name)


def create(
    broker: Broker, topics: Sequence[NewTopic], again: Callable[[], Outcome], then: Callable[[Errors], Outcome]
) -> Outcome:
    """Make topics on disk, then show them; `then` gets the refusals by name.

    When another request is making or erasing one of them, `again` is called once that is over. The names are free
    again however the making ends.
    """
    room = _room_for_partitions(broker)
    if sum(topic.partitions for topic in topics) > room:
        return _create_what_fits(broker, topics, room, again, then)
    return _create(broker, topics, again, then)


def _create(
    broker: Broker, topics: Sequence[NewTopic], again: Callable[[], Outcome], then: Callable[[Errors], Outcome]
) -> Do | Behind:
    names = [topic.name for topic in topics]
    taken = next((name for name in names if name in broker.topics.changing), None)
    if taken is not None:
        return Behind(taken, again)
    coming = sum(topic.partitions for topic in topics)
    broker.topics.take_names(names)
    broker.topics.coming += coming

    def over() -> None:
        broker.topics.coming -= coming
        broker.topics.free_names(names)

    def work() -> list[Topic | Refusal]:
        return [_make(broker, topic) for topic in topics]

    def show(made: list[Topic | Refusal]) -> Outcome:
        errors: Errors = {}
        for name, topic in zip(names, made, strict=True):
            if isinstance(topic, Refusal):
                errors[name] = topic
                if topic.code == ErrorCode.KAFKA_STORAGE_ERROR:
                    broker.effects.note(f"topic {name} could not be made: {topic.message}")
            else:
                broker.store.add_topic(topic)
        return then(errors)

    def failed(error: Exception) -> Outcome:
        return show([Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) for _ in names])

    return Do(work, show, failed, over=over)


def check_more_partitions(broker: Broker, topic: Topic, count: int) -> None:
    """Refuse a number of partitions that a topic cannot have."""
    have, partitions_max = len(topic.partitions), broker.config.integer("edge.topic.partitions.max")
    if count <= have:
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS, f"topic {topic.name!r} has {have} partitions; {count} would be no more"
        )
    if count > partitions_max:
        raise Refusal(ErrorCode.INVALID_PARTITIONS, f"{count} partitions asked for; {partitions_max} are allowed")
    if not any(log.may_come_online for log in topic.partitions):
        raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"topic {topic.name!r} could not be opened, so nothing is added")
    broker.space.check_room(topic.name)


def add_partitions(
    broker: Broker, counts: Mapping[str, int], again: Callable[[], Outcome], then: Callable[[Errors], Outcome]
) -> Outcome:
    """Give topics so many partitions in all, on disk, then show them; as `create`."""
    taken = next((name for name in counts if name in broker.topics.changing), None)
    if taken is not None:
        return Behind(taken, again)
    errors: Errors = {}
    growing: list[tuple[Topic, int]] = []
    room, coming = _room_for_partitions(broker), 0
    for name, count in counts.items():
        topic = broker.store.topics[name]
        more = count - len(topic.partitions)
        if more > room - coming:
            errors[name] = _too_many(more)
        else:
            coming += more
            growing.append((topic, count))
    if not growing:
        return then(errors)
    names = [topic.name for topic, _ in growing]
    broker.topics.take_names(names)
    broker.topics.coming += coming

    def over() -> None:
        broker.topics.coming -= coming
        broker.topics.free_names(names)

    def work() -> list[list[PartitionLog] | Refusal]:
        return [_make_partitions(broker, topic, count) for topic, count in growing]

    def show(made: list[list[PartitionLog] | Refusal]) -> Outcome:
        for (topic, _), logs in zip(growing, made, strict=True):
            if isinstance(logs, Refusal):
                errors[topic.name] = logs
                broker.effects.note(f"topic {topic.name} got no more partitions: {logs.message}")
            else:
                broker.store.add_partitions(topic, logs)
        return then(errors)

    def failed(error: Exception) -> Outcome:
        return show([Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) for _ in growing])

    return Do(work, show, failed, over=over)


def _make_partitions(broker: Broker, topic: Topic, count: int) -> list[PartitionLog] | Refusal:
    try:
        return broker.store.make_partitions(topic, count)
    except StorageFault as fault:
        return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(fault))


def _too_many(partitions: int) -> Refusal:
    reason = f"{partitions} partitions more than edge.partitions.max allows; delete topics or raise it"
    return Refusal(ErrorCode.POLICY_VIOLATION, reason)


def _room_for_partitions(broker: Broker) -> int:
    """How many more partitions there may be: each takes memory and file descriptors."""
    known = sum(len(topic.partitions) for topic in broker.store.topics.values())
    return broker.config.integer("edge.partitions.max") - known - broker.topics.coming


def _create_what_fits(
    broker: Broker,
    topics: Sequence[NewTopic],
    room: int,
    again: Callable[[], Outcome],
    then: Callable[[Errors], Outcome],
) -> Outcome:
    """Make those that find room, and `__consumer_offsets`; the others get what Kafka answers too large operations."""
    fit: list[NewTopic] = []
    refused: Errors = {}
    for topic in topics:
        if topic.name == OFFSETS_TOPIC or topic.partitions <= room:
            fit.append(topic)
            room -= topic.partitions
        else:
            refused[topic.name] = _too_many(topic.partitions)
    if not refused:  # nothing but __consumer_offsets, which is never refused
        return _create(broker, fit, again, then)
    return _create(broker, fit, again, lambda errors: then(refused | errors)) if fit else then(refused)


def _make(broker: Broker, topic: NewTopic) -> Topic | Refusal:
    try:
        return broker.store.make_topic(topic.name, topic.partitions, dict(topic.config), broker.clock.new_uuid())
    except Refusal as refusal:
        return refusal.kept()
    except StorageFault as fault:  # the other topics of the request are none the worse for it
        return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, str(fault))
