"""DescribeConfigs (32): the configuration of topics (resource type 2) and brokers (4).

Declarations only. Source: Kafka's schemas, KIP-226 for sources and synonyms.
"""

from __future__ import annotations

from edge_broker.protocol.message import Message, array, nullable_array
from edge_broker.protocol.scalars import boolean, int8, int16, int32, nullable_string, string


class DescribeConfigsResource(Message):
    """A resource and the keys asked for, null for all."""

    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = nullable_array(string)


class DescribeConfigsRequest(Message, flexible_from=4):
    """How are these configured? Versions 0-4."""

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean("1+")
    include_documentation: bool = boolean("3+")


class DescribeConfigsSynonym(Message):
    """Another key that the value could come from, in the order of precedence."""

    name: str = string("1+")
    value: str | None = nullable_string("1+")
    source: int = int8("1+")


class DescribeConfigsResourceResult(Message):
    """One key and its value; `is_default` is what version 0 has instead of the source."""

    name: str = string()
    value: str | None = nullable_string()
    read_only: bool = boolean()
    is_default: bool = boolean("0")
    config_source: int = int8("1+", default=-1)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, "1+")
    config_type: int = int8("3+")
    documentation: str | None = nullable_string("3+")


class DescribeConfigsResult(Message):
    """The configuration of one resource, or why it cannot be told."""

    error_code: int = int16()
    error_message: str | None = nullable_string()
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


class DescribeConfigsResponse(Message, flexible_from=4):
    """One answer per resource asked for."""

    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)
