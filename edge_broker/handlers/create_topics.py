"""CreateTopics (key 19): answered when the topic is on disk and synced.

In a cluster it is answered when the cluster has agreed, and this broker knows who leads each partition.

Source: Kafka protocol, CreateTopics 0 to 7; KIP-464 (defaults by -1), KIP-525 (configs in the answer), KIP-516 (topic
ids).
"""

from __future__ import annotations

from contextlib import suppress

from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.operations.topic_creation import (
    Errors,
    NewTopic,
    Replicas,
    check_new_topic,
    check_not_there,
    create,
    default_factor,
    names_in_metrics,
    replicated_config,
    room_for_partitions,
)
from edge_broker.broker.outcomes import Reply, Steps, Taken, changes_in_steps
from edge_broker.broker.state.topic_registry import INTERNAL_TOPICS, OWN_TOPICS
from edge_broker.errors import ErrorCode, Refusal
from edge_broker.handlers.describe_configs import topic_config_source
from edge_broker.protocol.api import CREATE_TOPICS
from edge_broker.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from edge_broker.security.acls import Operation, ResourceType
from edge_broker.storage.metadata.topic_config import describe_topic_config

DEFAULT = -1


@ServedApi(
    CREATE_TOPICS,
    CreateTopicsRequest,
    CreateTopicsResponse,
    {
        0: "partitions, replicas, configuration (KIP-4)",
        1: "validation alone, an error message",
        2: "throttle time (KIP-124)",
        3: "throttled by the client (KIP-219)",
        4: "the broker's defaults (KIP-464)",
        5: "compact lengths, tags, the configuration in the answer (KIP-482, KIP-525)",
        6: "quotas (KIP-599)",
        7: "topic ids (KIP-516)",
    },
    left_out="more than one replica, where a board stands alone",
)
@changes_in_steps
def create_topics(broker: Broker, context: RequestContext, request: CreateTopicsRequest) -> Taken:
    """Make each topic that may be made; the others get an error of their own."""
    wanted: dict[str, NewTopic] = {}
    errors: Errors = {}
    room, in_metrics = room_for_partitions(broker), names_in_metrics(broker)
    for asked in request.topics:
        yield None
        try:
            if asked.name in wanted or asked.name in errors:
                raise Refusal(ErrorCode.INVALID_REQUEST, f"topic {asked.name!r} is named twice in one request")
            broker.topics.check_create(context, asked.name)
            topic = _new_topic(broker, asked)
            check_new_topic(broker, topic, room, in_metrics)
            wanted[asked.name] = topic
            room -= topic.partitions
        except Refusal as refusal:
            errors[asked.name] = refusal.without_frames()
            if asked.name in wanted:
                room += wanted.pop(asked.name).partitions
    if request.validate_only or not wanted:
        return _reply(broker, context, request, wanted, errors)
    return create(
        broker,
        list(wanted.values()),
        retry=lambda: create_topics(broker, context, request),
        then=lambda failed: _reply(broker, context, request, wanted, errors | failed),
        timeout_ms=request.timeout_ms,
    )


def _new_topic(broker: Broker, asked: CreatableTopic) -> NewTopic:
    if asked.name in INTERNAL_TOPICS or (broker.cluster is not None and asked.name in OWN_TOPICS):
        check_not_there(broker, asked.name)
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{asked.name} is made by the broker itself")
    config: dict[str, str] = {}
    for entry in asked.configs:
        if entry.value is None:
            raise Refusal(ErrorCode.INVALID_CONFIG, f"{entry.name} has no value; leave it out or give it one")
        config[entry.name] = entry.value
    partitions, factor, assigned = _layout(broker, asked)
    return NewTopic(asked.name, partitions, replicated_config(broker, config, factor), factor, assigned)


def _layout(broker: Broker, asked: CreatableTopic) -> tuple[int, int, tuple[Replicas, ...]]:
    """How many partitions, replicas of each, and where they go if the request says it."""
    if asked.assignments:
        if asked.num_partitions != DEFAULT or asked.replication_factor != DEFAULT:
            raise Refusal(
                ErrorCode.INVALID_REQUEST, "give either partitions and replication factor or assignments, not both"
            )
        assigned = _assignment(broker, asked.assignments)
        return len(assigned), len(assigned[0]), assigned if broker.cluster is not None else ()
    factor = asked.replication_factor
    if broker.cluster is None and factor not in (DEFAULT, 1):
        raise Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"replication factor {asked.replication_factor} on one broker; use 1"
        )
    partitions = broker.config.integer("num.partitions") if asked.num_partitions == DEFAULT else asked.num_partitions
    return partitions, default_factor(broker) if factor == DEFAULT else factor, ()


def _assignment(broker: Broker, assignments: list[CreatableReplicaAssignment]) -> tuple[Replicas, ...]:
    by_number = {assignment.partition_index: tuple(assignment.broker_ids) for assignment in assignments}
    in_order = sorted(by_number) == list(range(len(assignments)))
    if broker.cluster is None and not (in_order and all(ids == (broker.node_id,) for ids in by_number.values())):
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"assign partitions 0, 1, … to broker {broker.node_id}, the only one here",
        )
    if not in_order:
        raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "assign partitions 0, 1, …, each once")
    return tuple(by_number[number] for number in range(len(by_number)))


def _reply(
    broker: Broker, context: RequestContext, request: CreateTopicsRequest, wanted: dict[str, NewTopic], errors: Errors
) -> Steps:
    return Steps(_answer(broker, context, request, wanted, errors))


def _answer(
    broker: Broker, context: RequestContext, request: CreateTopicsRequest, wanted: dict[str, NewTopic], errors: Errors
) -> Taken:
    results: list[CreatableTopicResult] = []
    for name in dict.fromkeys(topic.name for topic in request.topics):
        results.append(_result(broker, context, name, wanted, errors))
        yield results[-1]
    return Reply(CreateTopicsResponse(topics=results))


def _result(
    broker: Broker, context: RequestContext, name: str, wanted: dict[str, NewTopic], errors: Errors
) -> CreatableTopicResult:
    if name in errors:
        return CreatableTopicResult(
            name=name,
            error_code=errors[name].code,
            error_message=errors[name].message,
            num_partitions=-1,
            replication_factor=-1,
        )
    topic = wanted[name]
    result = CreatableTopicResult(name=name, error_message=None, configs=[])
    if broker.rights.may(context, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name, noted=False):
        result.num_partitions, result.replication_factor = topic.partitions, topic.factor
        result.configs = _configs(broker, topic)
    else:  # as Kafka, which counts the number of partitions among what is configured
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        result.num_partitions = result.replication_factor = -1
    with suppress(Refusal):  # it was only validated
        result.topic_id = broker.topics.described_there(name).topic_id
    return result


def _configs(broker: Broker, topic: NewTopic) -> list[CreatableTopicConfigs]:
    described = describe_topic_config(broker.store.settings, topic.config)
    return [
        CreatableTopicConfigs(name=entry.key.name, value=entry.value, config_source=topic_config_source(broker, entry))
        for entry in described
    ]
