"""Metadata (3): brokers, topics, partitions and their leaders.

Declarations only. Source: Kafka's schemas, KIP-516 for topic ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_broker.protocol.message import Message, array, nullable_array
from edge_broker.protocol.scalars import boolean, int16, int32, nullable_string, string, uuid_

if TYPE_CHECKING:
    from uuid import UUID

NO_AUTHORIZED_OPERATIONS = -2147483648


class MetadataRequestTopic(Message):
    """A topic asked for, by name or, with a null name, by id."""

    topic_id: UUID = uuid_("10+")
    name: str | None = nullable_string(nullable="10+")


class MetadataRequest(Message, flexible_from=9):
    """Which topics? Null means all (an empty list in version 0). Versions 0-13."""

    topics: list[MetadataRequestTopic] | None = nullable_array(MetadataRequestTopic, nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


class MetadataResponseBroker(Message):
    """A broker and where it listens."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = nullable_string("1+", default=None)


class MetadataResponsePartition(Message):
    """A partition, its leader and replicas."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32("7+", default=-1)
    replica_nodes: list[int] = array(int32)
    isr_nodes: list[int] = array(int32)
    offline_replicas: list[int] = array(int32, "5+")


class MetadataResponseTopic(Message):
    """A topic, or why it cannot be told."""

    error_code: int = int16()
    name: str | None = nullable_string(nullable="12+")
    topic_id: UUID = uuid_("10+")
    is_internal: bool = boolean("1+")
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32("8+", default=NO_AUTHORIZED_OPERATIONS)


class MetadataResponse(Message, flexible_from=9):
    """The cluster as this broker sees it; `cluster_id` must not be null towards clients."""

    throttle_time_ms: int = int32("3+")
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = nullable_string("2+", default=None)
    controller_id: int = int32("1+", default=-1)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32("8-10", default=NO_AUTHORIZED_OPERATIONS)
    error_code: int = int16("13+")
