"""AlterConfigs (key 33): topics get another configuration as a whole, answered when it is on disk and synced.

Keys that are not named get their defaults. Source: Kafka protocol, AlterConfigs 0 to 2; KIP-133.
"""

from __future__ import annotations

from functools import partial

from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.operations.topic_configs import TopicConfiguration, alter
from edge_broker.broker.outcomes import Taken, changes_in_steps
from edge_broker.errors import ErrorCode, Refusal
from edge_broker.protocol.api import ALTER_CONFIGS
from edge_broker.protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResponse


@ServedApi(
    ALTER_CONFIGS,
    AlterConfigsRequest,
    AlterConfigsResponse,
    {0: "of topics (KIP-133)", 1: "throttled by the client (KIP-219)", 2: "compact lengths, tags (KIP-482)"},
    left_out="the broker's own keys, loggers, clients, groups: topics alone",
)
@changes_in_steps
def alter_configs(broker: Broker, context: RequestContext, request: AlterConfigsRequest) -> Taken:
    """Alter each topic that may be altered; the others get an error of their own."""
    again = partial(alter_configs, broker, context, request)
    return (yield from alter(broker, context, request, _replace, AlterConfigsResponse, again))


def _replace(configs: list[AlterableConfig], _topic: TopicConfiguration) -> dict[str, str]:
    config: dict[str, str] = {}
    for entry in configs:
        if entry.name in config:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"{entry.name} is named twice; name it once")
        if entry.value is None:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"{entry.name} is null; leave it out to have its default")
        config[entry.name] = entry.value
    return config
