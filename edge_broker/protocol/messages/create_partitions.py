"""CreatePartitions (37): topics get more partitions.

Declarations only. Source: Kafka's schemas, KIP-195.
"""

from __future__ import annotations

from edge_broker.protocol.message import Message, array, nullable_array
from edge_broker.protocol.scalars import boolean, int16, int32, nullable_string, string


class CreatePartitionsAssignment(Message):
    """Which brokers hold one new partition."""

    broker_ids: list[int] = array(int32)


class CreatePartitionsTopic(Message):
    """How many partitions a topic is to have in all."""

    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = nullable_array(CreatePartitionsAssignment)


class CreatePartitionsRequest(Message, flexible_from=2):
    """Make these, or with `validate_only` say whether it would work. Versions 0-3."""

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


class CreatePartitionsTopicResult(Message):
    """Whether one topic has them."""

    name: str = string()
    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)


class CreatePartitionsResponse(Message, flexible_from=2):
    """One answer per topic."""

    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
