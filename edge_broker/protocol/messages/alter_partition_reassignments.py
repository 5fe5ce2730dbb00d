"""AlterPartitionReassignments (45): partitions are to have other replicas, or stay where they are after all.

Declarations only. Source: Kafka's schemas, KIP-455, KIP-860 for the replication factor.
"""

from __future__ import annotations

from edge_broker.protocol.message import Message, array, nullable_array
from edge_broker.protocol.scalars import boolean, int16, int32, nullable_string, string


class ReassignablePartition(Message):
    """The replicas that a partition is to have, null where it is not to be moved any more."""

    partition_index: int = int32()
    replicas: list[int] | None = nullable_array(int32, default=None)


class ReassignableTopic(Message):
    """Partitions of a topic."""

    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


class AlterPartitionReassignmentsRequest(Message, flexible_from=0):
    """Move these partitions. Versions 0 and 1."""

    timeout_ms: int = int32(default=60_000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


class ReassignablePartitionResponse(Message):
    """The result for a partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()


class ReassignableTopicResponse(Message):
    """The results for a topic's partitions."""

    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


class AlterPartitionReassignmentsResponse(Message, flexible_from=0):
    """One answer per partition, or an error of the whole."""

    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean("1+", default=True)
    error_code: int = int16()
    error_message: str | None = nullable_string()
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
