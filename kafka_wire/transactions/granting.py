"""Asks whether a cluster grants transactional ids to the user, and changes nothing there.

| operation | request | response if it is granted |
|---|---|---|
| Write | EndTxn of producer -1, which no id has | INVALID_PRODUCER_ID_MAPPING, or NOT_COORDINATOR |
| Describe | DescribeTransactions | a state, TRANSACTIONAL_ID_NOT_FOUND, or NOT_COORDINATOR |

Kafka checks the ACL first (KafkaApis of 3.9.2 and 4.3.1), so every broker can respond. A broker without
DescribeTransactions (before Kafka 3.0) is not asked for Describe. Does not contain: ACLs of topics.
"""

from __future__ import annotations

from collections.abc import Collection

from edge_broker.errors import ErrorCode
from edge_broker.protocol.messages.describe_transactions import DescribeTransactionsRequest
from edge_broker.protocol.messages.end_txn import EndTxnRequest
from kafka_wire.apis import DESCRIBE_TRANSACTIONS, END_TXN
from kafka_wire.connection.connection import Connection

DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


async def denied_operations(
    connection: Connection, transactional_ids: Collection[str], *, timeout_s: float
) -> dict[str, list[str]]:
    """Return the operations that the user lacks, of each transactional id that lacks one; raises WireError."""
    denied: dict[str, list[str]] = {}
    for one in transactional_ids:
        request = EndTxnRequest(transactional_id=one, producer_id=-1, producer_epoch=-1, committed=False)
        if (await connection.ask(END_TXN, request, timeout_s=timeout_s)).error_code == DENIED:
            denied.setdefault(one, []).append("Write")
    if connection.serves(DESCRIBE_TRANSACTIONS):
        wanted = DescribeTransactionsRequest(transactional_ids=list(transactional_ids))
        for state in (await connection.ask(DESCRIBE_TRANSACTIONS, wanted, timeout_s=timeout_s)).transaction_states:
            if state.error_code == DENIED:
                denied.setdefault(state.transactional_id, []).append("Describe")
    return denied
