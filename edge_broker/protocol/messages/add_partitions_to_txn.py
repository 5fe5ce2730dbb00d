"""AddPartitionsToTxn (24): name the partitions that the end of a transaction will write its marker to.

Declarations only, of what clients send; from version 4 on brokers ask each other. Source: Kafka's schemas, KIP-98.
"""

from __future__ import annotations

from edge_broker.protocol.message import Message, array
from edge_broker.protocol.scalars import int16, int32, int64, string


class AddPartitionsToTxnTopic(Message):
    """One topic's partitions."""

    name: str = string()
    partitions: list[int] = array(int32)


class AddPartitionsToTxnRequest(Message, flexible_from=3):
    """Add these, all or none. Versions 0-3."""

    v3_and_below_transactional_id: str = string("0-3")
    v3_and_below_producer_id: int = int64("0-3")
    v3_and_below_producer_epoch: int = int16("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "0-3")


class AddPartitionsToTxnPartitionResult(Message):
    """Whether a partition was added; OPERATION_NOT_ATTEMPTED where another one was refused."""

    partition_index: int = int32()
    partition_error_code: int = int16()


class AddPartitionsToTxnTopicResult(Message):
    """The answers of one topic's partitions."""

    name: str = string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(AddPartitionsToTxnPartitionResult)


class AddPartitionsToTxnResponse(Message, flexible_from=3):
    """One answer per partition."""

    throttle_time_ms: int = int32()
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, "0-3")
