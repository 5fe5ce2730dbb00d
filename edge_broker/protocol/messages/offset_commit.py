"""OffsetCommit (8): keep a group's offsets.

Declarations only. Source: Kafka's schemas; version 1's timestamp from those of 3.9, as 4.0 dropped versions 0 and 1.
"""

from __future__ import annotations

from edge_broker.protocol.message import Message, array
from edge_broker.protocol.scalars import int16, int32, int64, nullable_string, string


class OffsetCommitRequestPartition(Message):
    """The offset to read next in one partition."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("6+", default=-1)
    commit_timestamp: int = int64("1", default=-1)
    committed_metadata: str | None = nullable_string()


class OffsetCommitRequestTopic(Message):
    """One topic's offsets."""

    name: str = string()
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


class OffsetCommitRequest(Message, flexible_from=8):
    """Keep these. Versions 0-9; generation -1 and no member id commit from outside a group."""

    group_id: str = string()
    generation_id_or_member_epoch: int = int32("1+", default=-1)
    member_id: str = string("1+")
    group_instance_id: str | None = nullable_string("7+", default=None)
    retention_time_ms: int = int64("2-4", default=-1)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


class OffsetCommitResponsePartition(Message):
    """Whether one offset is kept."""

    partition_index: int = int32()
    error_code: int = int16()


class OffsetCommitResponseTopic(Message):
    """The answers of one topic's partitions."""

    name: str = string()
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


class OffsetCommitResponse(Message, flexible_from=8):
    """One answer per partition."""

    throttle_time_ms: int = int32("3+")
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
