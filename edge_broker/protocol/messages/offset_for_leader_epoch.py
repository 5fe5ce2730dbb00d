"""OffsetForLeaderEpoch (23): where an epoch ended, so that a client can tell whether its log was truncated.

Declarations only. Source: Kafka's schemas, KIP-101, KIP-320.
"""

from __future__ import annotations

from edge_broker.protocol.message import Message, array
from edge_broker.protocol.scalars import int16, int32, int64, string


class OffsetForLeaderPartition(Message):
    """One partition and the epoch asked about."""

    partition: int = int32()
    current_leader_epoch: int = int32("2+", default=-1)
    leader_epoch: int = int32()


class OffsetForLeaderTopic(Message):
    """One topic's partitions."""

    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


class OffsetForLeaderEpochRequest(Message, flexible_from=4):
    """Where did these epochs end? Versions 2-4; replica id -2 is a consumer's in version 2, -1 from 3."""

    replica_id: int = int32("3+", default=-2)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


class EpochEndOffset(Message):
    """The largest epoch up to the one asked about, and its end offset."""

    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32("1+", default=-1)
    end_offset: int = int64(default=-1)


class OffsetForLeaderTopicResult(Message):
    """The answers of one topic's partitions."""

    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


class OffsetForLeaderEpochResponse(Message, flexible_from=4):
    """One answer per partition."""

    throttle_time_ms: int = int32("2+")
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
