"""DescribeConfigs (key 32): topic-level and broker-level keys with where each value comes from.

Source: Kafka protocol, DescribeConfigs 0 to 4; KIP-226 (sources and synonyms), KIP-569 (types and documentation).
"""

from __future__ import annotations

from collections.abc import Sequence

from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.operations.topic_configs import BROKER, TOPIC, check_config_rights
from edge_broker.broker.outcomes import Reply, Taken, reads_in_steps
from edge_broker.configuration.config import KEYS
from edge_broker.configuration.listeners import listeners_text
from edge_broker.configuration.settings import INT_MAX, SHOWN_BROKER_KEYS, Key, Kind, Value, as_text
from edge_broker.errors import ErrorCode, Refusal
from edge_broker.protocol.api import DESCRIBE_CONFIGS
from edge_broker.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from edge_broker.security.acls import Operation
from edge_broker.storage.metadata.topic_config import TopicConfigEntry, describe_topic_config
from edge_broker.storage.metadata.topic_record import check_topic_name

TOPIC_CONFIG, STATIC_BROKER_CONFIG, DEFAULT_CONFIG = 1, 4, 5
ADDRESSES = frozenset({"listeners", "advertised.listeners"})
"""Keys whose values are what became of them, with the ports that were free."""


@ServedApi(
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
    check_config_rights(broker, context, Operation.DESCRIBE_CONFIGS, resource_type, name)
    if resource_type == TOPIC:
        return _topic_entries(broker, context, name)
    if resource_type == BROKER:
        if not name:
            return []  # what holds for all brokers and can be altered: nothing
        if name != str(broker.node_id):
            raise Refusal(ErrorCode.INVALID_REQUEST, f"broker {name} is not here, this is broker {broker.node_id}")
        return _broker_entries(broker)
    raise Refusal(
        ErrorCode.INVALID_REQUEST, f"resource type {resource_type} is not served; ask for topics (2) or brokers (4)"
    )


def _topic_entries(broker: Broker, context: RequestContext, name: str) -> list[DescribeConfigsResourceResult]:
    check_topic_name(name)
    topic = broker.topics.find_topic(context, name, Operation.DESCRIBE_CONFIGS)
    return [
        _entry(
            entry.key,
            entry.value,
            topic_config_source(broker, entry),
            _own_synonyms(entry) + _broker_synonyms(broker, entry.key.synonym, entry.key.default),
            read_only=False,
        )
        for entry in describe_topic_config(broker.store.settings, topic.config)
    ]


def topic_config_source(broker: Broker, entry: TopicConfigEntry) -> int:
    """Where a topic's value comes from: the topic, the broker's configuration, or neither."""
    if entry.explicit:
        return TOPIC_CONFIG
    return _broker_source(broker, entry.key.synonym)


def _broker_source(broker: Broker, name: str) -> int:
    return STATIC_BROKER_CONFIG if name in broker.config.explicit else DEFAULT_CONFIG


def _own_synonyms(entry: TopicConfigEntry) -> list[DescribeConfigsSynonym]:
    own = DescribeConfigsSynonym(name=entry.key.name, value=entry.value, source=TOPIC_CONFIG)
    return [own] if entry.explicit else []


def _broker_synonyms(broker: Broker, name: str, default: Value) -> list[DescribeConfigsSynonym]:
    """Return the broker's set value, then its defaults; nothing if the broker has no such key."""
    if not name:
        return []
    synonyms = [DescribeConfigsSynonym(name=name, value=as_text(default), source=DEFAULT_CONFIG)]
    if name in broker.config.explicit:
        told = DescribeConfigsSynonym(name=name, value=broker.config.text(name), source=STATIC_BROKER_CONFIG)
        synonyms.insert(0, told)
    return synonyms


def _broker_entries(broker: Broker) -> list[DescribeConfigsResourceResult]:
    entries = [
        _entry(
            key,
            broker.config.text(key.name) if key.name in KEYS else as_text(key.default),
            _broker_source(broker, key.name),
            _broker_synonyms(broker, key.name, key.default),
        )
        for key in (*KEYS.values(), *SHOWN_BROKER_KEYS)
        if key.name not in ADDRESSES
    ]
    return entries + [_static_entry(key, value) for key, value in _addresses(broker)]


def _addresses(broker: Broker) -> list[tuple[Key, str]]:
    """Which broker this is, where it listens, and where its data are."""
    listeners = list(broker.listeners.values())
    return [
        (Key("node.id", 1, "Node id of this broker: broker.id.", high=INT_MAX), str(broker.node_id)),
        (KEYS["listeners"], listeners_text(listeners)),
        (KEYS["advertised.listeners"], listeners_text(listeners, advertised=True)),
        (Key("log.dirs", "", "Where logs and offsets are kept: --data-dir.", kind=Kind.LIST), broker.store.data_dir),
    ]


def _static_entry(key: Key, value: str) -> DescribeConfigsResourceResult:
    synonym = DescribeConfigsSynonym(name=key.name, value=value, source=STATIC_BROKER_CONFIG)
    return _entry(key, value, STATIC_BROKER_CONFIG, [synonym])


def _entry(
    key: Key,
    value: str,
    source: int,
    synonyms: Sequence[DescribeConfigsSynonym] = (),
    *,
    read_only: bool = True,
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=key.name,
        value=None if key.type == Kind.PASSWORD else value,
        is_sensitive=key.type == Kind.PASSWORD,
        read_only=read_only,
        is_default=source == DEFAULT_CONFIG,
        config_source=source,
        synonyms=list(synonyms),
        config_type=key.type,
        documentation=key.doc,
    )
