"""DescribeCluster (60): the cluster's id and brokers.

Declarations only. Source: Kafka's schemas, KIP-700, KIP-919 for endpoint types (1 brokers, 2 controllers).
"""

from __future__ import annotations

from edge_broker.protocol.message import Message, array
from edge_broker.protocol.messages.metadata import NO_AUTHORIZED_OPERATIONS
from edge_broker.protocol.scalars import boolean, int8, int16, int32, nullable_string, string


class DescribeClusterRequest(Message, flexible_from=0):
    """Who is there? Versions 0-2."""

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+")


class DescribeClusterBroker(Message):
    """A broker and where it listens."""

    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = nullable_string(default=None)
    is_fenced: bool = boolean("2+")


class DescribeClusterResponse(Message, flexible_from=0):
    """The cluster."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=NO_AUTHORIZED_OPERATIONS)
