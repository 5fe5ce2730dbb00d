"""IncrementalAlterConfigs (44): some keys of topics change.

Declarations only. Source: Kafka's schemas, KIP-339.
"""

from __future__ import annotations

from edge_broker.protocol.message import Message, array
from edge_broker.protocol.messages.alter_configs import AlterConfigsResourceResponse
from edge_broker.protocol.scalars import boolean, int8, int32, nullable_string, string


class AlterableConfig(Message):
    """The operation on one key: set 0, delete 1, append to its list 2, subtract from its list 3."""

    name: str = string()
    config_operation: int = int8()
    value: str | None = nullable_string()


class AlterConfigsResource(Message):
    """A resource and the keys that change."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class IncrementalAlterConfigsRequest(Message, flexible_from=1):
    """Change these configurations, or with `validate_only` say whether it would work. Versions 0-1."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class IncrementalAlterConfigsResponse(Message, flexible_from=1):
    """One answer per resource."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
