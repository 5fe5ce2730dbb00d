"""How a coordinator is asked for transactions: what is asked again, what an answer means, how long they may take."""

from __future__ import annotations

import contextlib

import pytest

from drupelet.kafka.client import ClientSettings
from edge_broker.errors import ErrorCode
from edge_broker.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from edge_broker.protocol.messages.describe_transactions import DescribeTransactionsResponse, TransactionState
from edge_broker.protocol.messages.end_txn import EndTxnResponse
from edge_broker.protocol.messages.init_producer_id import InitProducerIdResponse
from kafka_wire.cluster import Cluster
from kafka_wire.connection.errors import ConnectionLost, WireError
from kafka_wire.transactions.fencing import ProducerFenced
from kafka_wire.transactions.transactions import NEVER_COMMITTED, TransactionDescription, Transactions
from tests.support.played_broker import PlayedBroker, listening
from tests.support.waiting import CALL_S

A, B = ("a", 0), ("b", 3)
ID = "edge-mirror-lab"


class Coordinator(PlayedBroker):
    """A broker with a coordinator, which takes no longer timeouts than `timeout_max_ms`."""

    def __init__(self):
        super().__init__()
        self.timeouts, self.commits, self.state = [], [], "CompleteAbort"
        self.timeout_max_ms = 10**9

    def on_InitProducerId(self, asked):
        code = self.code("InitProducerId")
        self.timeouts.append(asked.transaction_timeout_ms)
        if asked.transaction_timeout_ms > self.timeout_max_ms:
            code = ErrorCode.INVALID_TRANSACTION_TIMEOUT
        return InitProducerIdResponse(error_code=code, producer_id=11, producer_epoch=5)

    def on_AddPartitionsToTxn(self, asked):
        code = self.code("AddPartitionsToTxn")
        assert (asked.v3_and_below_producer_id, asked.v3_and_below_producer_epoch) == (11, 5)
        topics = [
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code)
                    for number in topic.partitions
                ],
            )
            for topic in asked.v3_and_below_topics
        ]
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)

    def on_EndTxn(self, asked):
        self.commits.append(asked.committed)
        assert (asked.transactional_id, asked.producer_id, asked.producer_epoch) == (ID, 11, 5)
        return EndTxnResponse(error_code=self.code("EndTxn"))

    def on_DescribeTransactions(self, asked):
        assert asked.transactional_ids == [ID]
        one = TransactionState(
            error_code=self.code("DescribeTransactions"),
            transactional_id=ID,
            transaction_state=self.state,
            transaction_timeout_ms=1000,
            transaction_start_time_ms=-1,
            producer_id=11,
            producer_epoch=6,
            topics=[],
        )
        return DescribeTransactionsResponse(transaction_states=[one])


@pytest.fixture
async def coordinator():
    async with listening(Coordinator()) as coordinator:
        yield coordinator


@pytest.fixture
async def transactions(coordinator):
    cluster = Cluster(ClientSettings(f"127.0.0.1:{coordinator.port}", "unit", int(CALL_S * 1000)))
    transactions = Transactions(cluster, ID, timeout_s=CALL_S)
    await transactions.prepare()
    coordinator.asked.clear()
    yield transactions
    cluster.close()


async def test_one_is_added_to_and_committed(coordinator, transactions):
    assert await transactions.add([B, A]) == {}
    assert await transactions.commit() == 0
    assert coordinator.asked == ["AddPartitionsToTxn", "EndTxn"]
    assert coordinator.commits == [True]
    assert transactions.producer == (11, 5)


RAISED = TransactionDescription("PrepareAbort", 11, 6, frozenset({A}))


async def play(coordinator, transactions, steps):
    """Have the coordinator respond to each step with the codes after it."""
    for step in steps:
        name, *codes = step.split()
        api = "AddPartitionsToTxn" if name == "add" else "EndTxn"
        coordinator.codes = {api: [code if code == "lost" else ErrorCode[code] for code in codes]}
        calls = {"add": [A], "extend": [A], "begin": [A]}
        with contextlib.suppress(ConnectionLost):
            await getattr(transactions, name)(*([calls[name]] if name in calls else []))


@pytest.mark.parametrize(
    ("steps", "held"),
    [
        ([], False),
        (["add"], True),
        (["add", "add"], True),
        (["add TOPIC_AUTHORIZATION_FAILED"], False),
        (["add lost"], False),
        (["add", "add lost"], True),
        (["add", "commit"], False),
        (["add", "commit", "add"], True),
        (["add", "commit PRODUCER_FENCED"], True),
        (["add", "abort INVALID_PRODUCER_EPOCH"], True),
        (["add", "commit CONCURRENT_TRANSACTIONS PRODUCER_FENCED"], True),
        (["add", "commit INVALID_TXN_STATE"], False),
        (["add", "commit lost"], False),
        (["add", "commit lost", "commit PRODUCER_FENCED"], False),
        (["add", "commit COORDINATOR_NOT_AVAILABLE PRODUCER_FENCED"], False),
        (["add", "commit lost", "commit", "add"], False),  # the first one may come late
        (["extend", "add"], True),
        (["extend NONE lost", "add"], False),
        (["add", "extend"], False),
        (["add", "begin"], False),
        (["begin", "commit lost", "begin", "add"], True),
    ],
)
async def test_a_raised_epoch_is_no_one_elses_where_a_transaction_was_surely_open(
    coordinator, transactions, steps, held
):
    await play(coordinator, transactions, steps)
    assert transactions.is_held(RAISED) is held
    assert transactions.is_held(RAISED._replace(state="CompleteAbort")) is held
    for other in (RAISED._replace(state="Empty"), RAISED._replace(state="Ongoing"), RAISED._replace(producer_epoch=7)):
        assert not transactions.is_held(other)
    assert not transactions.is_held(RAISED._replace(state="PrepareCommit"))
    assert not transactions.is_held(RAISED._replace(producer_id=12))
    assert transactions.is_held(TransactionDescription("PrepareCommit", 11, 5))


async def test_what_waits_for_markers_is_asked_again(coordinator, transactions):
    busy = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    coordinator.codes = {"AddPartitionsToTxn": list(busy), "EndTxn": list(busy)}
    assert await transactions.add([A]) == {}
    assert await transactions.commit() == 0
    assert coordinator.asked == ["AddPartitionsToTxn"] * 3 + ["EndTxn"] * 3


@pytest.mark.parametrize("code", sorted(NEVER_COMMITTED))
async def test_a_commit_that_can_never_be_is_told(coordinator, transactions, code):
    coordinator.codes["EndTxn"] = [code]
    assert await transactions.commit() == code


async def test_a_commit_without_an_answer_is_told_again_where_the_coordinator_is_then(coordinator, transactions):
    coordinator.codes["EndTxn"] = ["lost"]
    with pytest.raises(ConnectionLost):
        await transactions.commit()
    assert await transactions.commit() == 0
    assert coordinator.asked.count("FindCoordinator") == 1


async def test_a_partition_that_may_not_be_written_to_is_told(coordinator, transactions):
    coordinator.codes["AddPartitionsToTxn"] = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert await transactions.add([A]) == {A: ErrorCode.TOPIC_AUTHORIZATION_FAILED}


async def test_an_older_epoch_may_add_nothing(coordinator, transactions):
    coordinator.codes["AddPartitionsToTxn"] = [ErrorCode.INVALID_PRODUCER_EPOCH]
    with pytest.raises(ProducerFenced):
        await transactions.add([A])


async def test_how_it_stands_is_told_where_it_may_be_asked(coordinator, transactions):
    assert await transactions.describe() == TransactionDescription("CompleteAbort", 11, 6)
    coordinator.codes["DescribeTransactions"] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert await transactions.describe() == TransactionDescription("CompleteAbort", 11, 6)
    for code in (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
        coordinator.codes["DescribeTransactions"] = [code]
        assert await transactions.describe() is None
    coordinator.codes["DescribeTransactions"] = [ErrorCode.UNKNOWN_SERVER_ERROR]
    with pytest.raises(WireError, match="UNKNOWN_SERVER_ERROR"):
        await transactions.describe()


async def test_an_epoch_that_is_just_raised_is_described_as_what_it_becomes(coordinator, transactions):
    coordinator.state = "Ongoing"
    assert await transactions.describe() == TransactionDescription("Ongoing", 11, 6)  # another mirror's
    await transactions.add([A])
    assert await transactions.describe() == TransactionDescription("PrepareAbort", 11, 6)
    await transactions.commit()
    assert await transactions.describe() == TransactionDescription("Ongoing", 11, 6)


async def test_the_timeout_is_what_the_cluster_allows(coordinator, transactions):
    coordinator.timeout_max_ms = 20_000
    again = Transactions(transactions._cluster, ID, timeout_s=CALL_S)
    again.transaction_timeout_ms = 120_000
    await again.prepare()
    assert coordinator.timeouts[1:] == [120_000, 60_000, 30_000, 15_000]
    assert again.transaction_timeout_ms == 15_000
