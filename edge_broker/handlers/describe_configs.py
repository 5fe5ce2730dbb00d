"""DescribeConfigs (key 32): topic-level and broker-level keys with where each value comes from.

Source: Kafka protocol, DescribeConfigs 0 to 4; KIP-226 (sources and synonyms), KIP-569 (types and documentation).
"""

from __future__ import annotations

from edge_broker.broker.api import Served
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.outcome import Reply, Taken, reads_in_steps
from edge_broker.broker.topic_configs import BROKER, TOPIC
from edge_broker.broker.topics import Operation
from edge_broker.config import KEYS
from edge_broker.errors import ErrorCode, Refusal
from edge_broker.protocol.api import DESCRIBE_CONFIGS
from edge_broker.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from edge_broker.storage.topic_config import TOPIC_KEYS, TopicConfigEntry, describe_topic_config
from edge_broker.storage.topics import check_topic_name

TOPIC_CONFIG, STATIC_BROKER_CONFIG, DEFAULT_CONFIG = 1, 4, 5
TYPES = {bool: 1, str: 2, int: 5, float: 6}  # Kafka's ConfigDef types: BOOLEAN, STRING, LONG, DOUBLE


@Served(
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    {
        0: "of topics and of the broker (KIP-133)",
        1: "synonyms and sources (KIP-226)",
        2: "throttled by the client (KIP-219)",
        3: "types and documentation (KIP-569)",
        4: "compact lengths, tags (KIP-482)",
    },
    left_out="loggers, clients, groups: topics and brokers alone",
)
@reads_in_steps
def describe_configs(broker: Broker, context: RequestContext, request: DescribeConfigsRequest) -> Taken:
    """Describe each resource; an unknown one gets an error of its own."""
    results = []
    for resource in request.resources:
        result = DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name, configs=[]
        )
        try:
            result.configs = _entries(broker, context, resource.resource_type, resource.resource_name)
        except Refusal as refusal:
            result.error_code, result.error_message = refusal.code, refusal.message
        if resource.configuration_keys:  # none named, as in an empty list: all
            wanted = frozenset(resource.configuration_keys)
            result.configs = [entry for entry in result.configs if entry.name in wanted]
        for entry in result.configs:
            entry.synonyms = entry.synonyms if request.include_synonyms else []
            entry.documentation = entry.documentation if request.include_documentation else None
        results.append(result)
        yield result
    return Reply(DescribeConfigsResponse(results=results))


def _entries(
    broker: Broker, context: RequestContext, resource_type: int, name: str
) -> list[DescribeConfigsResourceResult]:
    if resource_type == TOPIC:
        return _topic_entries(broker, context, name)
    if resource_type == BROKER:
        if name not in ("", str(broker.node_id)):
            raise Refusal(ErrorCode.INVALID_REQUEST, f"broker {name} is not here, this is broker {broker.node_id}")
        return _broker_entries(broker)
    raise Refusal(
        ErrorCode.INVALID_REQUEST, f"resource type {resource_type} is not served; ask for topics (2) or brokers (4)"
    )


def _topic_entries(broker: Broker, context: RequestContext, name: str) -> list[DescribeConfigsResourceResult]:
    check_topic_name(name)
    topic = broker.topics.topic(context, name, Operation.DESCRIBE_CONFIGS)
    return [
        _entry(
            entry.name,
            entry.value,
            topic_config_source(entry),
            entry.kind,
            entry.doc,
            read_only=False,
        )
        for entry in describe_topic_config(broker.store.settings, topic.config)
    ]


def topic_config_source(entry: TopicConfigEntry) -> int:
    """Where a topic's value comes from: the topic, the broker's configuration, or neither."""
    if entry.explicit:
        return TOPIC_CONFIG
    follows = entry.name == "edge.durability"  # from flush.ms, unless it is set
    own = follows or entry.value == str(TOPIC_KEYS[entry.name].default)
    return DEFAULT_CONFIG if own else STATIC_BROKER_CONFIG


def _broker_entries(broker: Broker) -> list[DescribeConfigsResourceResult]:
    return [
        _entry(
            key.name,
            broker.config.text(key.name),
            STATIC_BROKER_CONFIG if key.name in broker.config.explicit else DEFAULT_CONFIG,
            type(key.default),
            key.doc,
            read_only=True,
        )
        for key in KEYS.values()
    ]


def _entry(name: str, value: str, source: int, kind: type, doc: str, read_only: bool) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=read_only,
        is_default=source == DEFAULT_CONFIG,
        config_source=source,
        synonyms=[DescribeConfigsSynonym(name=name, value=value, source=source)],
        config_type=TYPES.get(kind, 2),
        documentation=doc,
    )
