"""DescribeLogDirs (35): the bytes of each partition, by the directories that hold them.

Declarations only. Source: Kafka's schemas, KIP-113, KIP-827 for the sizes of volumes.
"""

from __future__ import annotations

from edge_broker.protocol.message import OWN_TAGS, Message, array, nullable_array
from edge_broker.protocol.scalars import boolean, int16, int32, int64, string


class DescribableLogDirTopic(Message):
    """A topic and the partitions asked for."""

    topic: str = string()
    partitions: list[int] = array(int32)


class DescribeLogDirsRequest(Message, flexible_from=2):
    """How large are these partitions, null for all? Versions 1-4."""

    topics: list[DescribableLogDirTopic] | None = nullable_array(DescribableLogDirTopic)


class DescribeLogDirsPartition(Message):
    """A partition's bytes in one directory; a future one is being moved there."""

    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


class DescribeLogDirsTopic(Message):
    """A topic's partitions in one directory."""

    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


class DescribeLogDirsResult(Message):
    """One directory, or why it cannot be told."""

    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64("4+", default=-1)
    usable_bytes: int = int64("4+", default=-1)


class BrokerProblem(Message):
    """Of a broker of ours: one thing that is wrong with it; `for_ms` is how long, -1 if unknown."""

    kind: str = string()
    text: str = string()
    for_ms: int = int64(default=-1)


class DescribeLogDirsResponse(Message, flexible_from=2):
    """One answer per directory."""

    throttle_time_ms: int = int32()
    error_code: int = int16("3+")
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
    problems: list[BrokerProblem] = array(BrokerProblem, "2+", tag=OWN_TAGS)
