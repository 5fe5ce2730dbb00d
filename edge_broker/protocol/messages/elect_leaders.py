"""ElectLeaders (43): partitions are to be led by their preferred replicas, or by one that may lack something.

Declarations only. Source: Kafka's schemas, KIP-460.
"""

from __future__ import annotations

from edge_broker.protocol.message import Message, array, nullable_array
from edge_broker.protocol.scalars import int8, int16, int32, nullable_string, string


class TopicPartitions(Message):
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(int32)


class ElectLeadersRequest(Message, flexible_from=2):
    """Elect leaders of these, null: of all; type 0 is preferred, 1 unclean. Versions 0-2."""

    election_type: int = int8("1+")
    topic_partitions: list[TopicPartitions] | None = nullable_array(TopicPartitions)
    timeout_ms: int = int32(default=60_000)


class PartitionResult(Message):
    """The result for one partition."""

    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()


class ReplicaElectionResult(Message):
    """Partitions of one topic."""

    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


class ElectLeadersResponse(Message, flexible_from=2):
    """An error of the whole, or one answer per partition."""

    throttle_time_ms: int = int32()
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
