"""Transactions of which a partition takes no marker, at three brokers of Apache Kafka 4.3.1 and 3.9.2.

Invariants: an end that was answered stands, under the epoch that it had; the partitions that have their markers are
readable, and DescribeTransactions lists the others alone; the id takes nothing else until these have theirs, while
another id carries on. transactional_ids.py goes by this. Does not contain: the mirror (test_mirror_in_sync.py).
"""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import ExitStack

import pytest

from drupelet.kafka.client import ClientSettings
from edge_broker.errors import error_name
from edge_broker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafka_wire import apis
from kafka_wire.cluster import Cluster
from kafka_wire.connection.errors import WireError
from kafka_wire.records.batches import stamp
from kafka_wire.transactions.transactions import Transactions
from tests.support.apache_cluster import kraft_cluster, zookeeper_cluster
from tests.support.kafka_reading import read_topic
from tests.support.record_batches import make_batch
from tests.support.waiting import CALL_S, Deadline
from tests.support.zookeeper import ZooKeeperEnsemble

SHORT_S = 40.0
BOUND_S = 1.5
OF_ALL = {"default.replication.factor": 3, "replica.lag.time.max.ms": 3000}
KRAFT = {**OF_ALL, "broker.session.timeout.ms": 2000, "broker.heartbeat.interval.ms": 300}
ZOOKEEPER = {**OF_ALL, "zookeeper.session.timeout.ms": 3000}


@pytest.fixture(scope="module", params=["4.3.1", pytest.param("3.9.2", marks=pytest.mark.night)])
def brokers(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("markers")
    with ExitStack() as stack:
        if request.param == "4.3.1":
            cluster = kraft_cluster(directory, settings=KRAFT)
        else:
            ensemble = stack.enter_context(ZooKeeperEnsemble(directory / "zookeeper"))
            cluster = zookeeper_cluster(directory, ensemble, settings=ZOOKEEPER)
        yield stack.enter_context(cluster)


class Client:
    """A client of the cluster, and topics of the test's."""

    def __init__(self, brokers):
        self.brokers, self.name = brokers, uuid.uuid4().hex[:8]
        self.cluster = Cluster(ClientSettings(brokers.bootstrap, "markers-test", int(CALL_S * 1000)))
        self.short, self.other = (f"short-{self.name}", 0), (f"other-{self.name}", 0)
        brokers.make_topic(self.short[0], 1, min_insync_replicas="3")
        brokers.make_topic(self.other[0], 1)

    def id(self, number=1):
        return Transactions(self.cluster, f"id-{self.name}-{number}", timeout_s=CALL_S)

    async def send(self, transactions, at, sequence, text):
        """Return the error's name of a transactional batch with one record."""
        batch = bytearray(make_batch([(b"k", text, int(time.time() * 1000))]))
        stamp(batch, *transactions.producer, sequence, transactional=True)
        leader = (await self.cluster.topics([at[0]]))[at[0]].leaders[0]
        data = [PartitionProduceData(index=0, records=memoryview(batch))]
        request = ProduceRequest(
            transactional_id=transactions._id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=at[0], partition_data=data)],
        )
        answer = await (await self.cluster.connection(leader.node)).ask(apis.PRODUCE, request, timeout_s=CALL_S)
        return error_name(answer.responses[0].partition_responses[0].error_code)

    async def open(self, transactions, *places):
        """Begin a transaction with a batch in each of these."""
        await transactions.begin(places)
        assert await transactions.add(places) == {}
        for at in places:
            await until(lambda at=at: self.send(transactions, at, 0, b"1"), "NONE")

    async def shorten(self):
        """Kill a broker that leads neither topic, nor coordinates the ids; return it once the topic is short of it."""
        nodes = {self.brokers.boards.index(self.brokers.leader(name)) + 1 for name, _ in (self.short, self.other)}
        nodes |= {await self.cluster.coordinator_node(self.id(number)._id, 1) for number in (1, 2)}
        left = [number for number in (1, 2, 3) if number not in nodes]
        board = self.brokers.boards[(left or [max(nodes)])[0] - 1]
        board.kill()
        deadline = Deadline(SHORT_S)
        try:
            while len((seen := self.brokers.partitions(self.short[0]))[0].isrs) > 2:
                deadline.check("a topic short of replicas", seen)
                await asyncio.sleep(0.3)
        except BaseException:
            board.start()  # the next test wants all of them
            raise
        return board

    async def read(self):
        """Return what a reader of committed records finds of the topic that has its replicas."""
        return await asyncio.to_thread(read_topic, self.brokers.bootstrap, self.other[0])


async def until(call, wanted):
    """Call until it returns what is wanted: after a kill others lead, and coordinate, a little later."""
    deadline, seen = Deadline(SHORT_S), None
    while True:
        try:
            seen = await call()
            if seen == wanted:
                return
        except (WireError, OSError) as error:
            seen = str(error)
        deadline.check(str(wanted), seen)
        await asyncio.sleep(0.2)


async def described(transactions):
    """How it stands; asked again where its coordinator is another now."""
    deadline = Deadline(SHORT_S)
    while True:
        try:
            told = await transactions.describe()
            assert told is not None
            return told
        except (WireError, OSError) as error:
            deadline.check("how it stands", error)
            await asyncio.sleep(0.2)


@pytest.mark.parametrize("ends", ["commit", "abort"])
async def test_an_end_stands_though_one_marker_is_missing_and_another_id_carries_on(brokers, ends):
    client = await asyncio.to_thread(Client, brokers)
    first, spare = client.id(1), client.id(2)
    await client.open(first, client.short, client.other)
    board = await client.shorten()
    try:
        await until(getattr(first, ends), 0)
        state, at_epoch = f"Prepare{ends.capitalize()}", first.producer

        async def stands():
            told = await described(first)
            return told[0], told[1:3], told.partitions

        await until(stands, (state, at_epoch, frozenset({client.short})))
        assert (await described(first)).is_decided
        first.markers_s = BOUND_S
        with pytest.raises(WireError, match="CONCURRENT_TRANSACTIONS"):
            await first.add([client.other])
        second = Transactions(client.cluster, first._id, timeout_s=CALL_S, bound_s=BOUND_S)
        with pytest.raises(WireError, match="CONCURRENT_TRANSACTIONS"):
            await second.begin([client.other])
        assert await stands() == (state, at_epoch, frozenset({client.short}))
        await client.open(spare, client.other)
        assert await spare.commit() == 0
        await until(lambda: _state(spare), "CompleteCommit")
        assert len(await client.read()) == (2 if ends == "commit" else 1)
        assert await stands() == (state, at_epoch, frozenset({client.short}))
    finally:
        await asyncio.to_thread(board.start)
    await until(lambda: _state(first), f"Complete{ends.capitalize()}")
    assert (await described(first))[1:3] == at_epoch
    assert not (await described(first)).partitions
    await second.begin([client.other])
    assert second.producer == (at_epoch[0], at_epoch[1] + 1)
    client.cluster.close()


@pytest.mark.parametrize("by", ["another", "timeout"])
async def test_a_raised_epoch_that_aborted_an_open_transaction_is_given_to_no_one(brokers, by):
    """Another mirror requests the id, or the transaction times out. The next epoch given is the one after that."""
    client = await asyncio.to_thread(Client, brokers)
    first, spare = client.id(1), client.id(2)
    first.transaction_timeout_ms = 1000 if by == "timeout" else 600_000
    second = Transactions(client.cluster, first._id, timeout_s=CALL_S, bound_s=BOUND_S)
    await first.begin([])  # the first to ask has the cluster make its topic
    board = await client.shorten()
    try:
        await until(lambda: opened(first, client.short, client.other), None)

        async def stands():
            if by == "another":
                with pytest.raises(WireError, match="CONCURRENT_TRANSACTIONS"):
                    await second.begin([client.other])
            told = await described(first)
            assert first.is_held(told)
            return told

        producer_id, epoch = first.producer
        await until(stands, ("PrepareAbort", producer_id, epoch + 1, frozenset({client.short})))
        await client.open(spare, client.other)
        assert await spare.commit() == 0
    finally:
        await asyncio.to_thread(board.start)
    await until(lambda: _state(first), "CompleteAbort")
    assert first.is_held(await described(first))
    await second.begin([client.other])
    assert second.producer == (producer_id, epoch + 2)
    assert not first.is_held(await described(first))
    client.cluster.close()


async def opened(transactions, *places):
    """Take an epoch and begin a transaction without a batch; None once that is done."""
    await transactions.begin([])
    assert await transactions.add(places) == {}


async def _state(transactions):
    return (await described(transactions)).state
