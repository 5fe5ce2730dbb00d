"""OffsetFetch (9): a group's committed offsets, from version 8 those of several groups.

Declarations only. Source: Kafka's schemas, KIP-709 for several groups.
"""

from __future__ import annotations

from edge_broker.protocol.message import Message, array, nullable_array
from edge_broker.protocol.scalars import boolean, int16, int32, int64, nullable_string, string


class OffsetFetchRequestTopic(Message):
    """One topic's partitions (to version 7)."""

    name: str = string("0-7")
    partition_indexes: list[int] = array(int32, "0-7")


class OffsetFetchRequestTopics(Message):
    """One topic's partitions (from version 8)."""

    name: str = string("8+")
    partition_indexes: list[int] = array(int32, "8+")


class OffsetFetchRequestGroup(Message):
    """A group and what is asked of it, null for all."""

    group_id: str = string("8+")
    member_id: str | None = nullable_string("9+", default=None)
    member_epoch: int = int32("9+", default=-1)
    topics: list[OffsetFetchRequestTopics] | None = nullable_array(OffsetFetchRequestTopics, "8+")


class OffsetFetchRequest(Message, flexible_from=6):
    """Where is the group? `group_id` and `topics` to version 7, `groups` from 8; null topics mean all. Versions 1-9."""

    group_id: str = string("0-7")
    topics: list[OffsetFetchRequestTopic] | None = nullable_array(OffsetFetchRequestTopic, "0-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+")
    require_stable: bool = boolean("7+")


class OffsetFetchResponsePartition(Message):
    """One offset, -1 when there is none (to version 7)."""

    partition_index: int = int32("0-7")
    committed_offset: int = int64("0-7")
    committed_leader_epoch: int = int32("5-7", default=-1)
    metadata: str | None = nullable_string("0-7")
    error_code: int = int16("0-7")


class OffsetFetchResponseTopic(Message):
    """One topic's offsets (to version 7)."""

    name: str = string("0-7")
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, "0-7")


class OffsetFetchResponsePartitions(Message):
    """One offset, -1 when there is none (from version 8)."""

    partition_index: int = int32("8+")
    committed_offset: int = int64("8+")
    committed_leader_epoch: int = int32("8+", default=-1)
    metadata: str | None = nullable_string("8+")
    error_code: int = int16("8+")


class OffsetFetchResponseTopics(Message):
    """One topic's offsets (from version 8)."""

    name: str = string("8+")
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, "8+")


class OffsetFetchResponseGroup(Message):
    """One group's offsets, or why they cannot be told."""

    group_id: str = string("8+")
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, "8+")
    error_code: int = int16("8+")


class OffsetFetchResponse(Message, flexible_from=6):
    """`topics` to version 7, `groups` from 8."""

    throttle_time_ms: int = int32("3+")
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7")
    error_code: int = int16("2-7")
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+")
