"""From a coordinator's effects to the log and to answers: what all group handlers share.

A group's records are appended to its partition of `__consumer_offsets` in the order in which its coordinator made them,
and what depends on them happens after the sync, whether or not the client that asked is still there. In a cluster they
are appended in the leader epoch in which the coordinator was loaded, or not at all.

Contains: settling effects. Does not contain: rules of groups (coordinator), wire messages of one API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.operations.durable_write import Write, write_all
from edge_broker.broker.outcomes import Outcome, Park, Reply, Steps
from edge_broker.broker.state.group_registry import ParkedRequest
from edge_broker.coordinator.group_requests import GroupEffects
from edge_broker.coordinator.offset_records import AGE_HEADER
from edge_broker.coordinator.storage_errors import group_error
from edge_broker.errors import ErrorCode
from edge_broker.protocol.message import Message
from edge_broker.protocol.record_batch import build_batch
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.metadata.topic_config import topic_settings

REQUIRED_GROUPS = "edge.required.groups"
SYNC_MS_MAX = 30_000  # after the interval that the configuration sets between syncs
KEYS_AT_ONCE = 256
NAMED_MAX = 3

# what the coordinator knows how to say to clients; anything else is the disk's failure
TOLD = (
    ErrorCode.NONE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
)

K = TypeVar("K")


def park(
    broker: Broker, context: RequestContext, group_id: str, effects: GroupEffects, translate: Callable[[Any], Message]
) -> Park:
    """Park a request until its result comes out of the effects, now or later; `translate` makes the response of it."""
    broker.groups.parked[context.token] = ParkedRequest(group_id, translate)
    apply_group_effects(broker, effects)
    return Park()


def apply_group_effects(broker: Broker, effects: GroupEffects, done: Callable[[ErrorCode], None] | None = None) -> None:
    """Hand out the answers and keep the records of one coordinator call.

    `done` is called once, on the loop: with NONE when the records are synced, or there are none, else with why not.
    """
    for other in effects.elsewhere:
        apply_group_effects(broker, other)
    for token, result in effects.answers:
        parked = broker.groups.parked.pop(token, None)
        if parked is not None and (response := parked.translate(result)) is not None:
            broker.effects.answer(token, response)
    if effects.append:
        broker.effects.start(_keep(broker, effects, done))
    elif done is not None:
        done(ErrorCode.NONE)


class _Records(Write):
    """The records of one call; each attempt checks again that its coordinator is still the served one."""

    __slots__ = ("_of",)

    def __init__(self, of: GroupEffects, records: memoryview) -> None:
        super().__init__(None, records)
        self._of = of

    def log_for(self, broker: Broker) -> PartitionLog:
        return broker.groups.log_for(self._of.partition, self._of.epoch)


def _keep(broker: Broker, effects: GroupEffects, done: Callable[[ErrorCode], None] | None) -> Outcome:
    """Write the records of one call, then let the coordinator go on."""
    aged = broker.offsets_retention_ms is not None and broker.cluster is None
    headers = [(AGE_HEADER, effects.age_ms.to_bytes(8, signed=True))] if aged else []
    batch = build_batch(effects.append, timestamp_ms=broker.clock.wall_ms(), headers=headers)
    write = _Records(effects, memoryview(bytearray(batch)))

    def records_written() -> Outcome:
        error = ErrorCode.NONE if write.error is None else ErrorCode(write.error.code)
        if error not in TOLD:
            error = ErrorCode.KAFKA_STORAGE_ERROR
        now_ms = broker.clock.steady_ms()
        apply_group_effects(
            broker, effects.append_synced(now_ms) if error == ErrorCode.NONE else effects.append_failed(error, now_ms)
        )
        if done is not None:
            done(error)
        return Reply(None)

    wait_ms = SYNC_MS_MAX + broker.config.integer("edge.flush.interval.min.ms")
    return write_all(broker, [write], records_written, wait_ms)


def some_of(names: Sequence[str]) -> str:
    """Names for a line of the log: the first ones, and how many more there are."""
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def required_topics(broker: Broker) -> dict[str, list[str]]:
    """By group: the topics whose edge.required.groups names it, on any broker."""
    found: dict[str, list[str]] = {}
    for topic in broker.topics.all():
        for group_id in required_groups(broker, topic.name):
            found.setdefault(group_id, []).append(topic.name)
    return found


def required_groups(broker: Broker, name: str) -> Sequence[str]:
    """The groups that the edge.required.groups of a topic names."""
    here = broker.store.topics.get(name)
    if broker.cluster is None or not broker.store.directory.is_replicated(name):
        return here.settings.groups if here is not None else ()
    topic, defaults = broker.cluster.view.topics.get(name), broker.store.settings
    if topic is None:
        return ()
    own = {key: value for key, value in topic.config.items() if key == REQUIRED_GROUPS}
    return topic_settings(defaults, own).groups if own else defaults.groups


def in_pieces(keys: Sequence[K]) -> Iterator[Sequence[K]]:
    """As many keys as one step of a request takes."""
    for first in range(0, len(keys), KEYS_AT_ONCE):
        yield keys[first : first + KEYS_AT_ONCE]


class Settling:
    """Several coordinator calls of one request, which is answered once all their records are synced."""

    def __init__(self, broker: Broker) -> None:
        self.errors: dict[str, ErrorCode] = {}
        """By group: why its records were not kept."""
        self._broker = broker
        self._left = 0
        self._answer: Callable[[], None] | None = None

    def add(self, effects: GroupEffects, group_id: str) -> None:
        """Hand out what one call brought about."""
        self._left += 1
        apply_group_effects(self._broker, effects, partial(self._group_completed, group_id))

    def _group_completed(self, group_id: str, error: ErrorCode) -> None:
        self._left -= 1
        if error != ErrorCode.NONE:
            self.errors.setdefault(group_id, group_error(error))
        if not self._left and self._answer is not None:
            self._answer()

    def answer_later(self, token: int, answer: Callable[[], Steps]) -> bool:
        """Answer the request of this token once all is complete; False if it is, and no request has to wait."""
        if self._left:
            self._answer = lambda: self._broker.effects.answer(token, answer())
        return self._left > 0


def forget_topics(broker: Broker, names: Sequence[str], done: Callable[[ErrorCode], None]) -> None:
    """Drop what groups committed for these topics; `done` hears of the sync, or of the first failure, once."""
    coordinators = broker.groups.coordinators
    errors: list[ErrorCode] = []

    def coordinator_completed(error: ErrorCode) -> None:
        errors.append(error)
        if len(errors) == len(coordinators):
            done(next(filter(None, errors), ErrorCode.NONE))

    for coordinator in coordinators:
        apply_group_effects(broker, coordinator.forget_topics(names, broker.clock.steady_ms()), coordinator_completed)
    if not coordinators:
        done(ErrorCode.NONE)


def stop_groups(broker: Broker) -> Outcome:
    """Send everyone who waits for a group elsewhere."""
    for coordinator in broker.groups.coordinators:
        apply_group_effects(broker, coordinator.stop(broker.clock.steady_ms()))
    return Reply(None)
