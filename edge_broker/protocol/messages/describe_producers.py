"""DescribeProducers (61): which producers a partition's leader remembers, and what of each.

Declarations only. Source: Kafka's schemas, KIP-664.
"""

from __future__ import annotations

from edge_broker.protocol.message import Message, array
from edge_broker.protocol.scalars import int16, int32, int64, nullable_string, string


class TopicRequest(Message):
    """One topic's partitions."""

    name: str = string()
    partition_indexes: list[int] = array(int32)


class DescribeProducersRequest(Message, flexible_from=0):
    """Who produced here? Version 0; asked of the partitions' leaders."""

    topics: list[TopicRequest] = array(TopicRequest)


class ProducerState(Message):
    """One producer; -1 for the sequence where its last word was a marker, and for no open transaction."""

    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


class PartitionResponse(Message):
    """The producers of one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)
    active_producers: list[ProducerState] = array(ProducerState)


class TopicResponse(Message):
    """The answers of one topic's partitions."""

    name: str = string()
    partitions: list[PartitionResponse] = array(PartitionResponse)


class DescribeProducersResponse(Message, flexible_from=0):
    """One answer per partition asked for."""

    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)
