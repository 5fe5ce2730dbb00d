"""IncrementalAlterConfigs (key 44): some keys of topics change, answered when that is on disk and synced.

| operation | the key gets |
|---|---|
| 0 set | this value |
| 1 delete | its default; one that is not set, or not known, is no error |
| 2 append | a list's value and these entries, as far as it has them not |
| 3 subtract | a list's value without these entries |

No key of a broker can be altered, so to delete one changes nothing, and is no error.

Source: Kafka protocol, IncrementalAlterConfigs 0 and 1; KIP-339.
"""

from __future__ import annotations

from functools import partial

from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.operations.topic_configs import TopicConfiguration, alter
from edge_broker.broker.outcomes import Taken, changes_in_steps
from edge_broker.errors import ErrorCode, Refusal
from edge_broker.protocol.api import INCREMENTAL_ALTER_CONFIGS
from edge_broker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from edge_broker.storage.metadata.topic_config import list_of

SET, DELETE, APPEND, SUBTRACT = range(4)


@ServedApi(
    INCREMENTAL_ALTER_CONFIGS,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    {0: "some keys of topics (KIP-339)", 1: "compact lengths, tags (KIP-482)"},
    left_out="the broker's own keys, loggers, clients, groups: topics alone; to delete a broker's key changes nothing",
)
@changes_in_steps
def incremental_alter_configs(
    broker: Broker, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> Taken:
    """Alter each topic that may be altered; the others get an error of their own."""
    again = partial(incremental_alter_configs, broker, context, request)
    return (
        yield from alter(
            broker, context, request, _changed_config, IncrementalAlterConfigsResponse, again, _only_deletes
        )
    )


def _only_deletes(configs: list[AlterableConfig]) -> bool:
    return bool(configs) and all(entry.config_operation == DELETE for entry in configs)


def _changed_config(configs: list[AlterableConfig], topic: TopicConfiguration) -> dict[str, str]:
    config = dict(topic.config)
    named: set[str] = set()
    for entry in configs:
        if entry.name in named:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"{entry.name} is named twice; name it once")
        named.add(entry.name)
        if entry.config_operation == DELETE:
            config.pop(entry.name, None)
        else:
            config[entry.name] = _value(entry, topic)
    return config


def _value(entry: AlterableConfig, topic: TopicConfiguration) -> str:
    name, operation, value = entry.name, entry.config_operation, entry.value
    if operation not in (SET, APPEND, SUBTRACT):
        raise Refusal(ErrorCode.INVALID_REQUEST, f"{operation} is no operation on {name}; use 0 to 3")
    if value is None:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"{name} is null; delete it to have its default")
    if operation == SET:
        return value
    there = list_of(topic.settings, topic.config, name)
    if there is None:
        raise Refusal(ErrorCode.INVALID_CONFIG, f"{name} holds no list; set it")
    entries = [part.strip() for part in value.split(",")]
    if operation == APPEND:
        return ",".join(dict.fromkeys([*there, *entries]))
    return ",".join(part for part in there if part not in entries)
