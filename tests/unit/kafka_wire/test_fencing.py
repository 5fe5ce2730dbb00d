"""How a coordinator is asked for a fence: in which order, how often again, and what its refusals mean."""

from __future__ import annotations

import asyncio

import pytest

from drupelet.kafka.client import ClientSettings
from edge_broker.errors import ErrorCode
from edge_broker.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from edge_broker.protocol.messages.end_txn import EndTxnResponse
from edge_broker.protocol.messages.init_producer_id import InitProducerIdResponse
from kafka_wire.cluster import SIDE, Cluster
from kafka_wire.connection.errors import ConnectionLost, WireError
from kafka_wire.transactions import fencing
from kafka_wire.transactions.fencing import Fence, Fencing, NoFence, ProducerFenced
from tests.support.played_broker import PlayedBroker, listening
from tests.support.scripted_wire import APIS
from tests.support.waiting import CALL_S

A, B = ("a", 0), ("b", 3)


class Coordinator(PlayedBroker):
    """A broker with a coordinator; `unknown` has the codes of topics, `together` how many partitions each request."""

    def __init__(self):
        super().__init__()
        self.epoch, self.producer_id = 4, 11
        self.unknown = {}
        self.together = []

    async def serve(self, peer, request):
        """Read the end of a transaction before the addition is answered."""
        is_pipelined = APIS[request.key].name == "AddPartitionsToTxn" and self.epoch < fencing.LAST_EPOCH
        end = await peer.request() if is_pipelined else None
        await super().serve(peer, request)
        if end is not None:
            await super().serve(peer, end)

    def on_FindCoordinator(self, asked):
        assert (asked.key, asked.key_type) == ("edge-mirror-lab", 1)
        return super().on_FindCoordinator(asked)

    def on_InitProducerId(self, asked):
        assert (asked.transactional_id, asked.producer_id) == ("edge-mirror-lab", -1)
        code = self.code("InitProducerId")
        if not code:
            self.epoch += 1
            if self.epoch > fencing.LAST_EPOCH:
                self.epoch, self.producer_id = 0, self.producer_id + 1
        return InitProducerIdResponse(error_code=code, producer_id=self.producer_id, producer_epoch=self.epoch)

    def on_AddPartitionsToTxn(self, asked):
        assert asked.v3_and_below_producer_epoch == self.epoch
        code, topics = self.code("AddPartitionsToTxn"), asked.v3_and_below_topics
        self.together.append(sum(len(topic.partitions) for topic in topics))
        if any(topic.name in self.unknown for topic in topics):
            code = ErrorCode.OPERATION_NOT_ATTEMPTED
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(
                            partition_index=number, partition_error_code=self.unknown.get(topic.name, code)
                        )
                        for number in topic.partitions
                    ],
                )
                for topic in topics
            ]
        )

    def on_EndTxn(self, asked):
        assert not asked.committed
        return EndTxnResponse(error_code=self.code("EndTxn"))


@pytest.fixture
async def coordinator():
    async with listening(Coordinator()) as coordinator:
        yield coordinator


@pytest.fixture
async def fence(coordinator):
    cluster = Cluster(ClientSettings(f"127.0.0.1:{coordinator.port}", "unit", int(CALL_S * 1000)))
    yield Fencing(cluster, "edge-mirror-lab", timeout_s=CALL_S)
    cluster.close()


async def test_a_fence_takes_four_round_trips(coordinator, fence):
    assert await fence.begin([B, A]) == Fence(11, 5, {}, True)
    assert coordinator.asked == ["FindCoordinator", "InitProducerId", "AddPartitionsToTxn", "EndTxn", "EndTxn"]
    assert coordinator.together == [2]
    coordinator.asked.clear()
    assert await fence.extend([("c", 1)]) == Fence(11, 5, {}, True)
    assert coordinator.asked == ["AddPartitionsToTxn", "EndTxn", "EndTxn"]
    coordinator.asked.clear()
    assert await fence.begin([]) == Fence(11, 6, {}, True)
    assert coordinator.asked == ["InitProducerId"]


async def test_something_is_done_while_the_end_is_confirmed(coordinator, fence, monkeypatch):
    given = []

    async def meanwhile(early):
        given.append((early, coordinator.asked.count("EndTxn")))

    coordinator.unknown = {"b": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    refused = {B: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert await fence.begin_with(lambda: [A, B], meanwhile) == Fence(11, 5, refused, True)
    ((early, ends),) = given
    assert early == Fence(11, 5, refused, False)
    assert ends < coordinator.asked.count("EndTxn")
    monkeypatch.setattr(fencing, "PARTITIONS_MAX", 1)  # of two transactions the first is over when the second begins
    assert (await fence.begin_with(lambda: [A, ("c", 1)], meanwhile)).is_confirmed
    assert len(given) == 1


async def test_an_epoch_is_taken_ahead_once(coordinator, fence):
    await asyncio.gather(fence.prepare(), fence.prepare(renew=True))
    assert await fence.begin([A]) == Fence(11, 5, {}, True)
    await fence.prepare()
    assert await fence.extend([B]) == Fence(11, 5, {}, True)
    await fence.prepare(renew=True)
    assert await fence.begin([A]) == Fence(11, 6, {}, True)
    assert coordinator.asked.count("InitProducerId") == 2


async def test_what_passes_by_itself_is_asked_again(coordinator, fence):
    busy, loading = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    coordinator.codes = {
        "FindCoordinator": [ErrorCode.COORDINATOR_NOT_AVAILABLE],
        "InitProducerId": [busy, loading, ErrorCode.NOT_COORDINATOR],
        "AddPartitionsToTxn": [busy],
        "EndTxn": [0, 0, busy, busy],
    }
    assert await fence.begin([A]) == Fence(11, 5, {}, True)
    assert coordinator.asked.count("FindCoordinator") == 3
    assert coordinator.asked.count("InitProducerId") == 4
    assert coordinator.asked.count("EndTxn") == 5


async def test_a_bad_partition_does_not_spoil_the_others(coordinator, fence):
    coordinator.unknown = {"b": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    coordinator.codes = {"EndTxn": [ErrorCode.INVALID_TXN_STATE]}
    assert await fence.begin([A, B]) == Fence(11, 5, {B: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}, True)
    assert coordinator.together == [2, 1]
    coordinator.unknown["a"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    fenced = await fence.begin([A, B])
    assert fenced.refused.keys() == {A, B}
    assert fenced.is_confirmed


async def test_markers_that_are_not_written_in_time_are_told(coordinator, fence, monkeypatch):
    monkeypatch.setattr(fence, "_bound_s", 0.1)
    monkeypatch.setattr(fencing, "PARTITIONS_MAX", 1)
    coordinator.codes = {"EndTxn": [0, *[ErrorCode.CONCURRENT_TRANSACTIONS] * 50]}
    assert await fence.begin([A, B]) == Fence(11, 5, {B: ErrorCode.CONCURRENT_TRANSACTIONS}, False)
    coordinator.codes = {"InitProducerId": [ErrorCode.CONCURRENT_TRANSACTIONS] * 50}
    with pytest.raises(WireError, match=r"a producer id cannot be had for .*edge-mirror-lab: CONCURRENT_TRANSACTIONS"):
        await fence.begin([A])


async def test_many_partitions_go_in_several_transactions(coordinator, fence, monkeypatch):
    monkeypatch.setattr(fencing, "PARTITIONS_MAX", 2)
    assert (await fence.begin([("t", number) for number in range(5)])).is_confirmed
    assert coordinator.together == [2, 2, 1]
    assert coordinator.asked[-9:] == ["AddPartitionsToTxn", "EndTxn", "EndTxn"] * 3


async def test_an_id_whose_epochs_end_is_fenced_before_the_next_one(coordinator, fence):
    coordinator.epoch = fencing.LAST_EPOCH - 1
    coordinator.codes = {"InitProducerId": [0, ErrorCode.CONCURRENT_TRANSACTIONS]}
    assert await fence.begin([A, B]) == Fence(12, 0, {}, True)
    assert coordinator.asked[1:] == [
        "InitProducerId",
        "AddPartitionsToTxn",
        *["InitProducerId"] * 2,
        "AddPartitionsToTxn",
        *["EndTxn"] * 2,
    ]


@pytest.mark.parametrize("name", ["FindCoordinator", "InitProducerId", "AddPartitionsToTxn"])
async def test_a_cluster_that_takes_no_transactional_id_says_so(coordinator, fence, name):
    coordinator.codes = {name: [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]}
    with pytest.raises(NoFence, match="edge-mirror-lab is refused: TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        await fence.begin([A])


async def test_a_cluster_without_transactions_says_so(coordinator, fence):
    coordinator.versions = {"ADD_PARTITIONS_TO_TXN": (4, 5)}
    with pytest.raises(NoFence, match="serves versions 4 to 5 of AddPartitionsToTxn"):
        await fence.begin([A])


@pytest.mark.parametrize(("name", "code"), [("AddPartitionsToTxn", 90), ("AddPartitionsToTxn", 49), ("EndTxn", 47)])
async def test_who_was_overtaken_is_told(coordinator, fence, name, code):
    coordinator.codes = {name: [code]}
    with pytest.raises(ProducerFenced, match="edge-mirror-lab is another's now"):
        await fence.begin([A])


async def test_what_nobody_foresees_is_told(coordinator, fence):
    coordinator.codes = {"InitProducerId": [ErrorCode.UNKNOWN_SERVER_ERROR]}
    with pytest.raises(WireError, match=r"a producer id cannot be had .*: UNKNOWN_SERVER_ERROR"):
        await fence.begin([A])


async def test_after_a_lost_connection_the_coordinator_is_looked_for_again(coordinator, fence):
    coordinator.codes = {"InitProducerId": ["lost"]}
    with pytest.raises(ConnectionLost):
        await fence.begin([A])
    assert await fence.begin([A]) == Fence(11, 5, {}, True)
    assert coordinator.asked.count("FindCoordinator") == 2


async def test_a_coordinator_that_is_lost_while_it_writes_the_markers_is_asked_again(coordinator, fence):
    """The end is in its log: with another epoch the next coordinator would wait until all have their markers."""
    coordinator.codes = {"EndTxn": [0, "lost", ErrorCode.CONCURRENT_TRANSACTIONS]}
    assert await fence.begin([A]) == Fence(11, 5, {}, True)
    assert coordinator.asked.count("InitProducerId") == 1


async def test_a_coordinator_that_stays_away_while_it_writes_the_markers_leaves_open_which_are(
    coordinator, fence, monkeypatch
):
    monkeypatch.setattr(fence, "_bound_s", 0.1)
    coordinator.codes = {"EndTxn": [0, *["lost"] * 50]}
    assert await fence.begin([A]) == Fence(11, 5, {}, False)


async def test_a_coordinator_that_is_connected_again_is_asked_first_and_says_itself_if_it_is_none(coordinator, fence):
    await fence.begin([A])
    for code in (0, ErrorCode.NOT_COORDINATOR):
        coordinator.codes = {"InitProducerId": ["lost", code]}
        with pytest.raises(ConnectionLost):
            await fence.begin([A])
        await fence._cluster.connection(7, SIDE)
        coordinator.asked.clear()
        assert (await fence.begin([A])).is_confirmed
        assert coordinator.asked.count("FindCoordinator") == bool(code)


async def test_two_calls_go_one_after_the_other(coordinator, fence):
    one, other = await asyncio.gather(fence.begin([A]), fence.begin([B]))
    assert {one.producer_epoch, other.producer_epoch} == {5, 6}
    assert coordinator.asked[1:5] == coordinator.asked[5:] or coordinator.asked[1:] == coordinator.asked[1:5] * 2
