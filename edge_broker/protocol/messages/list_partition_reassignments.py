"""ListPartitionReassignments (46): partitions that are being moved to other replicas.

Declarations only. Source: Kafka's schemas, KIP-455.
"""

from __future__ import annotations

from edge_broker.protocol.message import Message, array, nullable_array
from edge_broker.protocol.scalars import int16, int32, nullable_string, string


class ListPartitionReassignmentsTopics(Message):
    """Partitions of a topic that are asked for."""

    name: str = string()
    partition_indexes: list[int] = array(int32)


class ListPartitionReassignmentsRequest(Message, flexible_from=0):
    """Which of these partitions, null for all, are being moved? Version 0."""

    timeout_ms: int = int32(default=60_000)
    topics: list[ListPartitionReassignmentsTopics] | None = nullable_array(
        ListPartitionReassignmentsTopics, default=None
    )


class OngoingPartitionReassignment(Message):
    """A partition that is being moved: its replicas of now, those that come and those that go."""

    partition_index: int = int32()
    replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32)
    removing_replicas: list[int] = array(int32)


class OngoingTopicReassignment(Message):
    """The partitions of a topic that are being moved."""

    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


class ListPartitionReassignmentsResponse(Message, flexible_from=0):
    """The partitions in reassignment, or an error."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
