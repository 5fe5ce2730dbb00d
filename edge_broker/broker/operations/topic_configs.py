"""Altering the configuration of topics: the checks and the work that AlterConfigs and IncrementalAlterConfigs share.

| step of an alteration | what the others see |
|---|---|
| every resource is looked at | the old configuration |
| the topics' names are taken | a request that makes, deletes or alters one waits |
| the worker works out each new configuration, checks it, and replaces the topic's file | the old configuration |
| the logs go by it | the new one |
| what a topic showed while it was left to the kernel is synced, where it is not left to it any more | |
| the answer | |

In a cluster the topic's znode is replaced instead of a file, by its version, so that no change is lost; it is
answered once this broker's image shows it, and each broker's logs go by it as it comes. A change that does not
name a topic's replica settings keeps them (topic_creation.py: replicated_config).

A topic's configuration changes as a whole or not at all; the neighbour's refusal does not matter to it.

Does not contain: what a request may say of a key, what keys mean (topic_config.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.operations import cluster_change
from edge_broker.broker.operations.local_change import change
from edge_broker.broker.operations.topic_creation import replicated_config
from edge_broker.broker.outcomes import AfterName, Outcome, Reply, Steps, Taken, Wait
from edge_broker.broker.state.authorization import FAILED
from edge_broker.configuration.settings import LogSettings
from edge_broker.errors import ErrorCode, Refusal
from edge_broker.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from edge_broker.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from edge_broker.security.acls import CLUSTER_NAME, Operation, ResourceType
from edge_broker.storage.log import single_node_watermark
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.metadata.topic_config import check_new_config, topic_settings
from edge_broker.storage.metadata.topic_record import check_topic_name, id_text
from edge_broker.storage.topic import Topic

if TYPE_CHECKING:
    from edge_broker.broker.cluster_port import ClusterPort, DescribedTopic, Told, TopicDirectory
    from edge_broker.broker.state.topic_registry import AnyTopic

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
_RESOURCES = {
    TOPIC: ResourceType.TOPIC,
    BROKER: ResourceType.CLUSTER,
    BROKER_LOGGER: ResourceType.CLUSTER,
    CLIENT_METRICS: ResourceType.CLUSTER,
    GROUP: ResourceType.GROUP,
}
KEYS_MAX = 1000  # of one resource; a topic has some 20, and MirrorMaker deletes another 20 that it knows
SYNC_MS_MAX = 30_000
DURABILITIES = ("kernel", "interval", "sync")  # each keeps more than the one before


class TopicConfiguration(NamedTuple):
    """How a topic is configured: `config` holds the explicitly set keys, `settings` what follows from them."""

    config: Mapping[str, str]
    settings: LogSettings


Change: TypeAlias = Callable[[TopicConfiguration], dict[str, str]]
"""Makes the new configuration of the old; Refusal."""


class Alteration(NamedTuple):
    """A resource, and how so many of its keys change."""

    resource_type: int
    name: str
    keys: int
    only_deletes: bool  # they are to get their defaults
    change: Change


Refusals: TypeAlias = dict[int, Refusal]
"""By the number of the alteration."""


def alter(
    broker: Broker,
    context: RequestContext,
    request: AlterConfigsRequest | IncrementalAlterConfigsRequest,
    change: Callable[[list[Any], TopicConfiguration], dict[str, str]],
    response: type[AlterConfigsResponse | IncrementalAlterConfigsResponse],
    retry: Callable[[], Outcome],
    only_deletes: Callable[[list[Any]], bool] = lambda _: False,
) -> Generator[None, None, Outcome]:
    """Look at each resource, then alter those that may be; the `response` has an answer for each.

    `change` makes the new configuration of what the request says of a resource's keys; Refusal. `only_deletes` says
    whether all of them are to get their defaults.
    When another request has one of the topics for itself, `retry` is called once that is over.
    """

    def then(refused: Refusals) -> Outcome:
        return Steps(_answer(asked, refused, response))

    asked: list[Alteration] = []
    named: Counter[tuple[int, str]] = Counter()
    for one in request.resources:
        yield None
        keys = one.configs
        asked.append(
            Alteration(one.resource_type, one.resource_name, len(keys), only_deletes(keys), partial(change, keys))
        )
        named[one.resource_type, one.resource_name] += 1
    refused: Refusals = {}
    wanted: dict[int, Alteration] = {}
    for number, alteration in enumerate(asked):
        yield None
        try:
            if named[alteration.resource_type, alteration.name] > 1:
                raise Refusal(
                    ErrorCode.INVALID_REQUEST, f"{alteration.name!r} is named twice in one request; name it once"
                )
            if _is_done(broker, context, alteration):
                continue
            topic = _topic(broker, context, alteration)
            if request.validate_only:
                _changed_config(broker, topic, alteration)
            wanted[number] = alteration
        except Refusal as refusal:
            refused[number] = refusal.without_frames()
    if request.validate_only or not wanted:
        return then(refused)
    return _carry_out(broker, wanted, refused, retry, then)


def _answer(
    asked: Sequence[Alteration],
    refused: Refusals,
    response: type[AlterConfigsResponse | IncrementalAlterConfigsResponse],
) -> Taken:
    answers: list[AlterConfigsResourceResponse] = []
    for number, one in enumerate(asked):
        answer = AlterConfigsResourceResponse(
            error_message=None, resource_type=one.resource_type, resource_name=one.name
        )
        if number in refused:
            answer.error_code, answer.error_message = refused[number].code, refused[number].message
        answers.append(answer)
        yield answer
    return Reply(response(responses=answers))


def check_config_rights(
    broker: Broker, context: RequestContext, operation: Operation, resource_type: int, name: str
) -> None:
    """Refuse what a session may not do to the configuration of a resource; that of brokers is the cluster's."""
    kind = _RESOURCES.get(resource_type)
    if kind is not None and not broker.rights.may(
        context, operation, kind, CLUSTER_NAME if kind == ResourceType.CLUSTER else name
    ):
        whose = "the cluster" if kind == ResourceType.CLUSTER else f"{kind.name.lower()} {name!r}"
        raise Refusal(FAILED[kind], f"{context.session.principal} has no right to {operation.name} of {whose}")


def _is_done(broker: Broker, context: RequestContext, asked: Alteration) -> bool:
    """Whether a broker's keys are to get what they have: none was ever altered. Kafka's tools delete throttles."""
    if not asked.only_deletes or asked.resource_type != BROKER or asked.name not in ("", str(broker.node_id)):
        return False
    check_config_rights(broker, context, Operation.ALTER_CONFIGS, asked.resource_type, asked.name)
    return True


def _topic(broker: Broker, context: RequestContext, asked: Alteration) -> AnyTopic:
    check_config_rights(broker, context, Operation.ALTER_CONFIGS, asked.resource_type, asked.name)
    if asked.resource_type == BROKER:
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            "the broker's own keys cannot be altered while it runs; set them in its configuration file and restart it",
        )
    if asked.keys > KEYS_MAX:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"{asked.keys} keys are named, {KEYS_MAX} are allowed; name fewer")
    if asked.resource_type != TOPIC:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"resource type {asked.resource_type} is not served; alter topics (2)")
    if not asked.name:
        raise Refusal(ErrorCode.INVALID_REQUEST, "no topic is named; defaults of all topics are the broker's own keys")
    check_topic_name(asked.name)
    topic = broker.topics.find_topic(context, asked.name, Operation.ALTER_CONFIGS)
    if isinstance(topic, Topic) and not any(log.may_come_online for log in topic.partitions):
        raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"topic {topic.name!r} could not be opened, so nothing is altered")
    return topic


def _changed_config(broker: Broker, topic: AnyTopic, asked: Alteration) -> dict[str, str]:
    if isinstance(topic, Topic):
        config = asked.change(TopicConfiguration(topic.config, topic.settings))
    else:
        settings = topic_settings(broker.store.settings, topic.config)
        config = replicated_config(
            broker, asked.change(TopicConfiguration(topic.config, settings)), len(topic.partitions[0])
        )
    check_new_config(config)
    return config


class _Altering(cluster_change.ChangeOfTopic):
    """Another configuration of a topic of the cluster, computed again if another change was quicker."""

    def __init__(self, broker: Broker, topic: DescribedTopic, asked: Alteration) -> None:
        super().__init__(topic.name, id_text(topic.topic_id))
        self._broker, self._asked = broker, asked
        self._config: dict[str, str] | None = None  # that was asked for

    def ask(self, cluster: ClusterPort, told: Told) -> None:
        """As Change."""
        topic, described = self.there(cluster.view), cluster.view.describe(self.name)
        assert described is not None
        self._config = _changed_config(self._broker, described, self._asked)
        if self._config == topic.config:
            told(ErrorCode.NONE)
        else:
            cluster.changes.change_topic(self.name, topic._replace(config=self._config), told)

    def holds(self, view: TopicDirectory) -> bool:
        """As Change."""
        topic = self.topic_in(view)
        return topic is not None and topic.config == self._config


class _AlteredTopic(NamedTuple):
    topic: Topic
    config: dict[str, str]
    settings: LogSettings


def _carry_out(
    broker: Broker,
    wanted: Mapping[int, Alteration],
    refused: Refusals,
    retry: Callable[[], Outcome],
    then: Callable[[Refusals], Outcome],
) -> Outcome:
    taken = broker.topics.first_taken(one.name for one in wanted.values())
    if taken is not None:
        return AfterName(taken, retry)
    found: dict[int, AnyTopic] = {}
    for number, one in wanted.items():
        try:
            found[number] = broker.topics.described_there(one.name)
        except Refusal as refusal:  # it was deleted since it was looked at
            refused[number] = refusal.without_frames()
    if not found:
        return then(refused)
    topics = {number: topic for number, topic in found.items() if isinstance(topic, Topic)}
    if broker.cluster is not None:
        of_cluster = {number: topic for number, topic in found.items() if not isinstance(topic, Topic)}
        return _agree(broker, wanted, of_cluster, refused, then)

    def piece(number: int, topic: Topic) -> Callable[[], _AlteredTopic]:
        return lambda: _write_config(broker, topic, wanted[number])

    def show(altered: dict[int, _AlteredTopic | Refusal]) -> Outcome:
        unsynced: dict[int, list[PartitionLog]] = {}
        for number, found in altered.items():
            if isinstance(found, Refusal):
                refused[number] = found
                if found.code == ErrorCode.KAFKA_STORAGE_ERROR:
                    broker.effects.note(f"topic {topics[number].name} keeps its configuration: {found.message}")
            else:
                unsynced[number] = _use(broker, found)
        return _when_synced(broker, unsynced, refused, then)

    pieces = {number: piece(number, topic) for number, topic in topics.items()}
    return change(broker, [topic.name for topic in topics.values()], pieces, show)


def _agree(
    broker: Broker,
    wanted: Mapping[int, Alteration],
    topics: Mapping[int, DescribedTopic],
    refused: Refusals,
    then: Callable[[Refusals], Outcome],
) -> Outcome:
    def over(failed: Mapping[str, Refusal]) -> Outcome:
        for topic in topics.values():
            now = broker.cluster.view.describe(topic.name) if broker.cluster is not None else None
            if topic.name not in failed and now is not None:
                before, after = (topic_settings(broker.store.settings, each.config) for each in (topic, now))
                _note_durability(broker, topic.name, before, after)
        return then(refused | {number: failed[topic.name] for number, topic in topics.items() if topic.name in failed})

    return cluster_change.agree(
        broker, [_Altering(broker, topic, wanted[number]) for number, topic in topics.items()], over
    )


def _write_config(broker: Broker, topic: Topic, asked: Alteration) -> _AlteredTopic:
    config = _changed_config(broker, topic, asked)
    return _AlteredTopic(topic, config, broker.store.topic_files.write_config(topic, config))


def _note_durability(broker: Broker, topic: str, before: LogSettings, after: LogSettings) -> None:
    if DURABILITIES.index(after.durability) < DURABILITIES.index(before.durability):
        broker.effects.note(f"topic {topic}: edge.durability went down from {before.durability} to {after.durability}")


def _use(broker: Broker, altered: _AlteredTopic) -> list[PartitionLog]:
    """Go by a new configuration; the logs that have shown more than they may show by it."""
    topic, config, settings = altered
    _note_durability(broker, topic.name, topic.settings, settings)
    broker.store.use_config(topic, config, settings)
    online = [log for log in topic.partitions if log.fault is None]
    if not settings.left_to_kernel:
        return [log for log in online if log.synced_end.offset < log.high_watermark]
    for log in online:  # what is not synced may be shown at once
        single_node_watermark.advance_high_watermark(log.state)
        broker.effects.log_appended(log)
    return []


def _when_synced(
    broker: Broker,
    unsynced: Mapping[int, list[PartitionLog]],
    refused: Refusals,
    then: Callable[[Refusals], Outcome],
) -> Outcome:
    """Answer once what was shown is synced: what a topic promises holds for all of it then."""
    ends = {log: log.high_watermark for logs in unsynced.values() for log in logs}
    if not ends:
        return then(refused)
    for log in ends:
        broker.effects.sync(log)

    def is_open(log: PartitionLog) -> bool:
        return log.fault is None and log.synced_end.offset < ends[log]

    def ready() -> Outcome | None:
        return None if any(map(is_open, ends)) else sync_ended()

    def sync_ended() -> Outcome:
        for number, logs in unsynced.items():
            late = next((log for log in logs if log.synced_end.offset < ends[log]), None)
            if late is not None:
                code = ErrorCode.REQUEST_TIMED_OUT if late.fault is None else ErrorCode.KAFKA_STORAGE_ERROR
                refused[number] = Refusal(
                    code, f"it was altered, but what {late.topic}-{late.partition} held before is not synced"
                )
        return then(refused)

    wait_ms = SYNC_MS_MAX + broker.config.integer("edge.flush.interval.min.ms")
    return Wait(list(ends), ready, wait_ms, sync_ended, syncs=False)
