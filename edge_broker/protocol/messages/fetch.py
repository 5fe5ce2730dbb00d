"""Fetch (1): read record batches, waiting for them.

Declarations only. Source: Kafka's schemas, KIP-227 for sessions, KIP-516 for topic ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_broker.protocol.message import OWN_TAGS, Message, array, nullable_array, struct
from edge_broker.protocol.scalars import boolean, int8, int16, int32, int64, nullable_string, records, string, uuid_

if TYPE_CHECKING:
    from uuid import UUID


class ReplicaState(Message):
    """The replica that fetches; consumers leave it out."""

    replica_id: int = int32("15+", default=-1)
    replica_epoch: int = int64("15+", default=-1)


class FetchPartition(Message):
    """Where to read in one partition, and how much at most."""

    partition: int = int32()
    current_leader_epoch: int = int32("9+", default=-1)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1)
    partition_max_bytes: int = int32()
    replica_directory_id: UUID = uuid_("17+", tag=0)
    synced_end: int = int64("17+", tag=OWN_TAGS, default=-1)  # of a follower of ours: what its disk has confirmed
    keeps_out: bool = boolean("17+", tag=OWN_TAGS + 1)  # it takes no records now, and is not to be in sync
    is_full: bool = boolean("17+", tag=OWN_TAGS + 2)  # as its disk has no room
    state_id: str = string("17+", tag=OWN_TAGS + 3)  # of the state of the partition that its disk has kept (lines.py)
    was_full: bool = boolean("17+", tag=OWN_TAGS + 4)  # its disk was full within the last minute


class FetchTopic(Message):
    """A topic to read: by name up to version 12, by id from 13."""

    topic: str = string("0-12")
    topic_id: UUID = uuid_("13+")
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Message):
    """Partitions to take out of a fetch session."""

    topic: str = string("7-12")
    topic_id: UUID = uuid_("13+")
    partitions: list[int] = array(int32, "7+")


class FetchRequest(Message, flexible_from=12):
    """Read from these, waiting up to `max_wait_ms` for `min_bytes`. Versions 4-17."""

    cluster_id: str | None = nullable_string("12+", default=None, tag=0)
    replica_id: int = int32("0-14", default=-1)
    replica_state: ReplicaState | None = struct(ReplicaState, "15+", tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32("3+", default=0x7FFFFFFF)
    isolation_level: int = int8("4+")
    session_id: int = int32("7+")
    session_epoch: int = int32("7+", default=-1)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+")


class FetchEpochEndOffset(Message):
    """The largest epoch that both logs share, and its end, when the reader's log has diverged."""

    epoch: int = int32("12+", default=-1)
    end_offset: int = int64("12+", default=-1)


class FetchLeaderIdAndEpoch(Message):
    """The present leader, sent with NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH."""

    leader_id: int = int32("12+", default=-1)
    leader_epoch: int = int32("12+", default=-1)


class SnapshotId(Message):
    """Used by raft only."""

    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


class AbortedTransaction(Message):
    """A producer and the first offset of its transaction that was aborted."""

    producer_id: int = int64("4+")
    first_offset: int = int64("4+")


class PartitionData(Message):
    """The records read from one partition, and its offsets."""

    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64("4+", default=-1)
    log_start_offset: int = int64("5+", default=-1)
    diverging_epoch: FetchEpochEndOffset | None = struct(FetchEpochEndOffset, "12+", tag=0)
    current_leader: FetchLeaderIdAndEpoch | None = struct(FetchLeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId | None = struct(SnapshotId, "12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = nullable_array(AbortedTransaction, "4+")
    preferred_read_replica: int = int32("11+", default=-1)
    records: bytes | bytearray | memoryview | None = records()
    answers_offset: int = int64("17+", tag=OWN_TAGS, default=-1)  # to a follower of ours: the order that this is for
    lost: FetchEpochEndOffset | None = struct(FetchEpochEndOffset, "17+", tag=OWN_TAGS + 1)  # what it is to pass over


class FetchableTopicResponse(Message):
    """The records read from one topic."""

    topic: str = string("0-12")
    topic_id: UUID = uuid_("13+")
    partitions: list[PartitionData] = array(PartitionData)


class FetchNodeEndpoint(Message):
    """Where a new leader listens."""

    node_id: int = int32("16+")
    host: str = string("16+")
    port: int = int32("16+")
    rack: str | None = nullable_string("16+", default=None)


class FetchResponse(Message, flexible_from=12):
    """The records read; session id 0 says that there is no session."""

    throttle_time_ms: int = int32("1+")
    error_code: int = int16("7+")
    session_id: int = int32("7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[FetchNodeEndpoint] = array(FetchNodeEndpoint, "16+", tag=0)
