"""DescribeTransactions (65): how the transactions of transactional ids stand, as their coordinator knows them.

Declarations only. Source: Kafka's schemas, KIP-664.
"""

from __future__ import annotations

from edge_broker.protocol.message import Message, array
from edge_broker.protocol.scalars import int16, int32, int64, string


class DescribeTransactionsRequest(Message, flexible_from=0):
    """How do these stand? Version 0; asked of their coordinator."""

    transactional_ids: list[str] = array(string)


class TopicData(Message):
    """The partitions of one topic that are in the transaction."""

    topic: str = string()
    partitions: list[int] = array(int32)


class TransactionState(Message):
    """One id; the state by Kafka's name for it, the start -1 where no transaction is open."""

    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TopicData] = array(TopicData)


class DescribeTransactionsResponse(Message, flexible_from=0):
    """One answer per id."""

    throttle_time_ms: int = int32()
    transaction_states: list[TransactionState] = array(TransactionState)
