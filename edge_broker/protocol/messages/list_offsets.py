"""ListOffsets (2): offsets by timestamp; -1 is the latest, -2 the earliest, -3 the one of the largest timestamp.

Declarations only. Source: Kafka's schemas.
"""

from __future__ import annotations

from edge_broker.protocol.message import Message, array
from edge_broker.protocol.scalars import int8, int16, int32, int64, string


class ListOffsetsPartition(Message):
    """One partition and the timestamp (ms since 1970, or a negative special) looked for."""

    partition_index: int = int32()
    current_leader_epoch: int = int32("4+", default=-1)
    timestamp: int = int64()


class ListOffsetsTopic(Message):
    """One topic's partitions."""

    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


class ListOffsetsRequest(Message, flexible_from=6):
    """Which offsets? Versions 1-10; specials -3 from 7, -4 from 8, -5 from 9."""

    replica_id: int = int32()
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32("10+")


class ListOffsetsPartitionResponse(Message):
    """The offset found, -1 for none."""

    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1)


class ListOffsetsTopicResponse(Message):
    """The offsets found in one topic."""

    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


class ListOffsetsResponse(Message, flexible_from=6):
    """One answer per partition asked for."""

    throttle_time_ms: int = int32("2+")
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
