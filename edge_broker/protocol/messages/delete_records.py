"""DeleteRecords (21): partitions lose what lies before an offset.

Declarations only. Source: Kafka's schemas, KIP-107.
"""

from __future__ import annotations

from edge_broker.protocol.message import Message, array
from edge_broker.protocol.scalars import int16, int32, int64, string


class DeleteRecordsPartition(Message):
    """Where a partition is to begin; offset -1 is its high watermark."""

    partition_index: int = int32()
    offset: int = int64()


class DeleteRecordsTopic(Message):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


class DeleteRecordsRequest(Message, flexible_from=2):
    """Delete what lies before these offsets. Versions 0-2."""

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


class DeleteRecordsPartitionResult(Message):
    """Where a partition begins now; -1 with an error."""

    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


class DeleteRecordsTopicResult(Message):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


class DeleteRecordsResponse(Message, flexible_from=2):
    """One answer per partition."""

    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
