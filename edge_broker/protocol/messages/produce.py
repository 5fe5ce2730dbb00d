"""Produce (0): append record batches; versions 0-2 are advertised, never served.

Declarations only. Source: Kafka's schemas, KIP-951 for leaders.
"""

from __future__ import annotations

from edge_broker.protocol.message import OWN_TAGS, Message, array, struct
from edge_broker.protocol.scalars import int16, int32, int64, nullable_string, records, string


class PartitionProduceData(Message):
    """The record batches for one partition."""

    index: int = int32()
    records: memoryview | None = records()


class TopicProduceData(Message):
    """The partitions of one topic to write to."""

    name: str = string("0-12")
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Message, flexible_from=9):
    """Append these; acks 0, 1 or -1 (all). Versions 3-12; acks=0 gets no response."""

    transactional_id: str | None = nullable_string("3+", default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)
    forwarder: int = int32("9+", tag=OWN_TAGS, default=-1)  # a broker of ours that forwards entries of its journal


class BatchIndexAndErrorMessage(Message):
    """A single record that made its batch be refused."""

    batch_index: int = int32("8+")
    batch_index_error_message: str | None = nullable_string("8+", default=None)


class ProduceLeaderIdAndEpoch(Message):
    """The present leader, sent with NOT_LEADER_OR_FOLLOWER."""

    leader_id: int = int32("10+", default=-1)
    leader_epoch: int = int32("10+", default=-1)


class PartitionProduceResponse(Message):
    """The base offset given, or why the partition refused."""

    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64("2+", default=-1)
    log_start_offset: int = int64("5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+")
    error_message: str | None = nullable_string("8+", default=None)
    current_leader: ProduceLeaderIdAndEpoch | None = struct(ProduceLeaderIdAndEpoch, "10+", tag=0)


class TopicProduceResponse(Message):
    """The answers of one topic's partitions."""

    name: str = string("0-12")
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class ProduceNodeEndpoint(Message):
    """Where a new leader listens."""

    node_id: int = int32("10+")
    host: str = string("10+")
    port: int = int32("10+")
    rack: str | None = nullable_string("10+", default=None)


class ProduceResponse(Message, flexible_from=9):
    """One answer per partition asked for."""

    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32("1+")
    node_endpoints: list[ProduceNodeEndpoint] = array(ProduceNodeEndpoint, "10+", tag=0)
