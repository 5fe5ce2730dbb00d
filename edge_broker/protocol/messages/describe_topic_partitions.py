"""DescribeTopicPartitions (75): partitions of topics, page by page.

Declarations only. Source: Kafka's schemas, KIP-966.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_broker.protocol.message import Message, array, nullable_array, nullable_struct
from edge_broker.protocol.messages.metadata import NO_AUTHORIZED_OPERATIONS
from edge_broker.protocol.scalars import boolean, int16, int32, nullable_string, string, uuid_

if TYPE_CHECKING:
    from uuid import UUID


class TopicRequest(Message):
    """A topic asked for."""

    name: str = string()


class Cursor(Message):
    """The first partition of the page to come."""

    topic_name: str = string()
    partition_index: int = int32()


class DescribeTopicPartitionsRequest(Message, flexible_from=0):
    """Which partitions? No topics mean all. Version 0."""

    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = nullable_struct(Cursor)


class DescribeTopicPartitionsResponsePartition(Message):
    """A partition, its leader and replicas."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1)
    replica_nodes: list[int] = array(int32)
    isr_nodes: list[int] = array(int32)
    eligible_leader_replicas: list[int] | None = nullable_array(int32, default=None)
    last_known_elr: list[int] | None = nullable_array(int32, default=None)
    offline_replicas: list[int] = array(int32)


class DescribeTopicPartitionsResponseTopic(Message):
    """A topic, or why it cannot be told."""

    error_code: int = int16()
    name: str | None = nullable_string()
    topic_id: UUID = uuid_()
    is_internal: bool = boolean()
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(DescribeTopicPartitionsResponsePartition)
    topic_authorized_operations: int = int32(default=NO_AUTHORIZED_OPERATIONS)


class DescribeTopicPartitionsResponse(Message, flexible_from=0):
    """A page; `next_cursor` is null on the last."""

    throttle_time_ms: int = int32()
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = nullable_struct(Cursor)
