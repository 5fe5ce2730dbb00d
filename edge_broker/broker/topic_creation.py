"""Making topics and partitions: the checks and the work that CreateTopics, Metadata and others share.

Lives here: what a valid new topic is, and the outcome that makes one, or more partitions of one. Must never come in:
the shape of any request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import NamedTuple

from edge_broker.broker.broker import Broker
from edge_broker.broker.changing import change
from edge_broker.broker.outcome import Behind, Outcome
from edge_broker.broker.topics import metric_name
from edge_broker.errors import ErrorCode, Refusal
from edge_broker.storage.store import Topic
from edge_broker.storage.topic_config import check_new_config
from edge_broker.storage.topics import OFFSETS_TOPIC, check_topic_name

Errors = dict[str, Refusal]


class NewTopic(NamedTuple):
    """A topic to be made: `partitions` is at least 1, `config` holds explicitly set topic-level keys."""

    name: str
    partitions: int
    config: Mapping[str, str]


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
    return NewTopic(OFFSETS_TOPIC, broker.config.integer("offsets.topic.num.partitions"), config)


def automatic_topic(broker: Broker, name: str) -> NewTopic:
    """How a topic is made that somebody merely asked for."""
    if name == OFFSETS_TOPIC:
        return offsets_topic(broker)
    return NewTopic(name, broker.config.integer("num.partitions"), {})


def names_in_metrics(broker: Broker) -> Callable[[], Mapping[str, str]]:
    """What check_new_topic is given for all topics of one request: the names are gathered once, if at all.

    What another request adds between its steps is for `create` to see, which looks again.
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
    broker.space.check_room(topic.name)
    if topic.partitions > room and topic.name != OFFSETS_TOPIC:
        raise _too_many(topic.partitions)


def create(
    broker: Broker, topics: Sequence[NewTopic], again: Callable[[], Outcome], then: Callable[[Errors], Outcome]
) -> Outcome:
    """Make topics on disk, then show them; `then` gets the refusals by name.

    When another request is making or erasing one of them, `again` is called once that is over. The names are free
    again however the making ends. What was checked in steps is looked at once more: another request may be quicker.
    """
    taken = broker.topics.taken(topic.name for topic in topics)
    if taken is not None:
        return Behind(taken, again)
    errors: Errors = {}
    making: list[_Making] = []
    room, in_metrics = room_for_partitions(broker), broker.topics.in_metrics()
    for topic in topics:
        try:
            check_not_there(broker, topic.name)
            _check_metric_name(topic.name, in_metrics)
            if topic.partitions > room and topic.name != OFFSETS_TOPIC:
                raise _too_many(topic.partitions)
        except Refusal as refusal:
            errors[topic.name] = refusal.kept()
        else:
            room -= topic.partitions
            in_metrics[metric_name(topic.name)] = topic.name
            making.append(_Making(topic.name, topic.partitions, _making_topic(broker, topic), "could not be made"))
    return _make(broker, making, errors, then)


def _making_topic(broker: Broker, new: NewTopic) -> Callable[[], Callable[[], None]]:
    def make() -> Callable[[], None]:
        store = broker.store
        return partial(
            store.add_topic, store.make_topic(new.name, new.partitions, dict(new.config), broker.clock.new_uuid())
        )

    return make


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
    taken = broker.topics.taken(counts)
    if taken is not None:
        return Behind(taken, again)
    errors: Errors = {}
    making: list[_Making] = []
    room = room_for_partitions(broker)
    for name, count in counts.items():
        try:
            topic = broker.topics.there(name)
            check_more_partitions(broker, topic, count)
            more = count - len(topic.partitions)
            if more > room:
                raise _too_many(more)
        except Refusal as refusal:
            errors[name] = refusal.kept()
        else:
            room -= more
            making.append(_Making(name, more, _making_partitions(broker, topic, count), "got no more partitions"))
    return _make(broker, making, errors, then)


def _making_partitions(broker: Broker, topic: Topic, count: int) -> Callable[[], Callable[[], None]]:
    def make() -> Callable[[], None]:
        return partial(broker.store.add_partitions, topic, broker.store.make_partitions(topic, count))

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
    known = sum(len(topic.partitions) for topic in broker.store.topics.values())
    return broker.config.integer("edge.partitions.max") - known - broker.topics.coming
