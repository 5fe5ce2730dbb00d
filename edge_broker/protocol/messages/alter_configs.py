"""AlterConfigs (33): topics get another configuration.

Declarations only. Source: Kafka's schemas, KIP-133.
"""

from __future__ import annotations

from edge_broker.protocol.message import Message, array
from edge_broker.protocol.scalars import boolean, int8, int16, int32, nullable_string, string


class AlterableConfig(Message):
    """A key and its value."""

    name: str = string()
    value: str | None = nullable_string()


class AlterConfigsResource(Message):
    """A resource and every key that is to be set; the others get their defaults."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class AlterConfigsRequest(Message, flexible_from=2):
    """Set these configurations, or with `validate_only` say whether it would work. Versions 0-2."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Message):
    """Whether one resource has its configuration."""

    error_code: int = int16()
    error_message: str | None = nullable_string()
    resource_type: int = int8()
    resource_name: str = string()


class AlterConfigsResponse(Message, flexible_from=2):
    """One answer per resource."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
