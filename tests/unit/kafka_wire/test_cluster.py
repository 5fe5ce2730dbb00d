"""Which broker is asked what, by which connection; attempts shared, and their times."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from drupelet.kafka.client import ClientSettings
from drupelet.kafka.security import Security
from edge_broker.errors import ErrorCode
from edge_broker.protocol.messages.fetch import FetchRequest
from edge_broker.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafka_wire import apis
from kafka_wire.cluster import SIDE, Cluster, Leader, Topic
from kafka_wire.connection.errors import BrokerRefused, ConnectionLost, NobodyListens, WireError
from kafka_wire.connection.reconnecting_connection import BACKOFF_MAX_S, LINK_S, Line
from tests.support.played_broker import PlayedBroker, listening
from tests.support.ports import free_port
from tests.support.scripted_wire import until
from tests.support.waiting import CALL_S

TOPIC_ID = uuid.UUID(int=7)


class Site(PlayedBroker):
    """A cluster of one node with two topics, of which one is unknown; it answers no fetch."""

    def on_Metadata(self, asked):
        assert asked.allow_auto_topic_creation is False
        led = MetadataResponsePartition(partition_index=0, leader_id=7, leader_epoch=3)
        none = MetadataResponsePartition(partition_index=1, leader_id=-1)
        known = MetadataResponseTopic(name="t", topic_id=TOPIC_ID, partitions=[none, led])
        unknown = MetadataResponseTopic(name="u", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        wanted = None if asked.topics is None else {topic.name for topic in asked.topics}
        topics = [topic for topic in (known, unknown) if wanted is None or topic.name in wanted]
        return MetadataResponse(brokers=[self.node()], topics=topics)

    def on_Fetch(self, _):
        return None

    def cluster(self, *before, **more):
        servers = ",".join([*before, f"127.0.0.1:{self.port}"])
        return Cluster(ClientSettings(servers, "unit", int(CALL_S * 1000)), **more)


@pytest.fixture
async def site():
    async with listening(Site()) as site:
        yield site


async def test_topics_are_told_as_the_broker_tells_them(site):
    cluster = site.cluster()
    found = await cluster.topics(["t", "u"])
    assert found["t"] == Topic("AAAAAAAAAAAAAAAAAAAABw", 0, {0: Leader(7, 3), 1: Leader(-1, -1)})
    assert found["u"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert set(await cluster.topics(None)) == {"t", "u"}
    assert await cluster.topics([]) == {}
    assert cluster.nodes == {7: ("127.0.0.1", site.port)}
    assert site.connections == 1
    cluster.close()


async def test_a_node_takes_over_the_connection_of_its_bootstrap_server(site):
    cluster = site.cluster()
    await cluster.topics([])
    ways = (cluster.connection(7, SIDE), cluster.connection(7, SIDE), cluster.connection(7))
    first, again, other = await asyncio.gather(*ways)
    assert first is again
    assert other is not first
    assert site.connections == 2
    cluster.close()


async def test_a_node_is_found_without_a_call_before(site):
    cluster = site.cluster()
    assert (await cluster.connection(7)).place == f"127.0.0.1:{site.port}"
    with pytest.raises(
        ConnectionLost, match=f"broker 8 is none of those that the cluster at 127.0.0.1:{site.port} names"
    ):
        await cluster.connection(8)
    cluster.close()


async def test_questions_go_by_a_connection_that_has_nothing_under_way(site):
    cluster = site.cluster()
    connection = await cluster.connection(7)
    fetch = connection.send(apis.FETCH, FetchRequest(), timeout_s=CALL_S)
    asked = cluster.connection(7, SIDE)
    await cluster.topics(["t"])
    assert not fetch.done()
    assert await cluster.any_connection() is await asked is not connection
    cluster.close()
    with pytest.raises(ConnectionLost, match="was closed here"):
        await fetch


async def test_a_question_goes_behind_another_one_rather_than_by_a_connection_that_is_yet_to_be_made(site):
    cluster = site.cluster()
    await cluster.topics([])
    assert set((await asyncio.gather(cluster.topics(["t"]), cluster.topics(["u"])))[1]) == {"u"}
    assert site.connections == 1
    cluster.close()


async def test_the_coordinator_is_the_node_that_is_told(site):
    cluster = site.cluster()
    assert await cluster.coordinator("g") is await cluster.connection(7, SIDE)
    site.codes["FindCoordinator"] = [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    with pytest.raises(WireError, match="the coordinator of group g is not known: COORDINATOR_NOT_AVAILABLE"):
        await cluster.coordinator("g")
    cluster.close()


async def test_all_bootstrap_servers_are_tried_in_turn(site):
    refusing = f"127.0.0.1:{free_port()}"
    cluster = site.cluster(refusing)
    assert set(await cluster.topics(None)) == {"t", "u"}
    cluster.close()
    alone = Cluster(ClientSettings(f"{refusing},localhost:{free_port()}", "unit", 1000))
    with pytest.raises(BrokerRefused) as refused:
        await alone.topics([])
    assert str(refused.value).count("nothing listens there") == 2
    alone.close()


async def test_a_connection_that_was_lost_is_opened_again(site):
    cluster = site.cluster()
    first = await cluster.connection(7)
    first.close()
    second = await cluster.connection(7)
    assert second is not first
    assert not second.is_closed
    cluster.close()
    with pytest.raises(ConnectionLost, match="were closed here"):
        await cluster.connection(7)
    with pytest.raises(ConnectionLost, match="were closed here"):
        await cluster.connection(7, 3)


class Attempts:
    """What a line opens: each attempt waits for the test, which says how it ends."""

    def __init__(self):
        self.begun = []
        self.ends = asyncio.Queue()

    async def open(self, _limit_s, _hurried):
        self.begun.append(asyncio.get_running_loop().time())
        end = await self.ends.get()
        if isinstance(end, Exception):
            raise end
        return end


class Made:
    """A connection as far as a line looks at it."""

    end_error = None

    @property
    def is_closed(self):
        return self.end_error is not None

    def close(self):
        self.end_error = self.end_error or ConnectionLost("closed")


async def test_callers_share_an_attempt_and_what_it_comes_to():
    attempts = Attempts()
    line = Line(attempts.open)
    callers = [asyncio.ensure_future(line.connection()) for _ in range(3)]
    await until(lambda: attempts.begun, "an attempt")
    callers[0].cancel()
    attempts.ends.put_nowait(BrokerRefused("no"))
    for caller in callers[1:]:
        with pytest.raises(BrokerRefused, match="no"):
            await caller
    assert len(attempts.begun) == 1
    assert callers[0].cancelled()
    made = Made()
    attempts.ends.put_nowait(made)
    assert await line.connection() is made
    assert await line.connection() is made
    assert len(attempts.begun) == 2


async def outcome(line, attempts, end):
    """Have the next attempt end so, at once; the least wait before the one after it."""
    line.retry_now()
    attempts.ends.put_nowait(end)
    before = asyncio.get_running_loop().time()
    if isinstance(end, Exception):
        with pytest.raises(type(end)):
            await line.connection()
    else:
        await line.connection()
    return line.next_at - before


async def test_a_link_that_is_down_is_tried_each_second():
    attempts = Attempts()
    line = Line(attempts.open)
    for _ in range(5):
        assert await outcome(line, attempts, ConnectionLost("down")) >= LINK_S
    began = attempts.begun[-1]
    attempts.ends.put_nowait(ConnectionLost("down"))
    with pytest.raises(ConnectionLost):
        await line.connection()
    assert attempts.begun[-1] >= began + LINK_S


async def test_a_broker_that_is_not_up_yet_is_tried_each_second():
    attempts = Attempts()
    line = Line(attempts.open)
    for _ in range(8):
        assert await outcome(line, attempts, NobodyListens("nobody")) <= LINK_S + CALL_S / 2


async def test_who_refuses_is_tried_ever_more_rarely():
    attempts = Attempts()
    line = Line(attempts.open)
    waits = []
    for _ in range(12):
        attempts.ends.put_nowait(BrokerRefused("no"))
        line.next_at, before = 0.0, asyncio.get_running_loop().time()
        with pytest.raises(BrokerRefused):
            await line.connection()
        waits.append(line.next_at - before)
    assert waits[0] < 10
    assert BACKOFF_MAX_S / 2 <= waits[-1] <= BACKOFF_MAX_S + CALL_S
    assert await outcome(line, attempts, BrokerRefused("no")) < 10  # the route has changed


async def test_a_connection_that_is_refused_once_it_is_made_counts_as_refused():
    attempts = Attempts()
    line = Line(attempts.open)
    waits = []
    for _ in range(9):
        made = Made()
        attempts.ends.put_nowait(made)
        line.next_at = 0.0
        asking = asyncio.ensure_future(line.connection())
        await until(lambda asking=asking: line.next_at > 0 or asking.done(), "a time")
        waits.append(line.next_at - asyncio.get_running_loop().time())
        line._now.set()
        line.next_at = 0.0
        assert await asking is made
        made.end_error = BrokerRefused("not you")
    assert max(waits) > 10
    made.end_error = ConnectionLost("gone")
    attempts.ends.put_nowait(Made())
    line.next_at = 0.0
    await line.connection()
    assert line.next_at <= asyncio.get_running_loop().time() + LINK_S


async def test_a_broker_that_is_reached_again_gets_its_question_line_back_unasked(site):
    opened = []
    cluster = site.cluster(opened=lambda: opened.append(site.connections))
    first, side = await asyncio.gather(cluster.connection(7), cluster.connection(7, SIDE))
    await cluster.connection(7, 1)
    assert cluster.is_connected(7, SIDE)
    for connection in (first, side, await cluster.connection(7, 1)):
        connection.close()
    assert not cluster.is_connected(7, SIDE)
    await cluster.connection(7)
    await until(lambda: cluster.is_connected(7, SIDE), "the connection for questions")
    assert not cluster.is_connected(7, 1), "others are asked for by those who need them"
    assert len(opened) == 5
    cluster.close()


async def test_who_was_refused_is_not_tried_because_another_was_reached():
    attempts = Attempts()
    line = Line(attempts.open)
    line.broker_reached(is_wanted=True)
    assert line.is_idle, "it was never made"
    made = Made()
    await outcome(line, attempts, made)
    made.end_error = ConnectionLost("gone")
    await outcome(line, attempts, BrokerRefused("no"))
    line.broker_reached(is_wanted=True)
    assert line.is_idle


async def test_a_dial_that_hangs_is_begun_anew_when_another_was_reached():
    attempts, hurried = Attempts(), []

    async def open_(limit_s, now):
        hurried.append(now)
        return await attempts.open(limit_s, now)

    line = Line(open_)
    asking = asyncio.ensure_future(line.connection())
    await until(lambda: hurried, "an attempt")
    assert not hurried[0].is_set()
    line.broker_reached(is_wanted=False)
    assert hurried[0].is_set()
    attempts.ends.put_nowait(Made())
    await asking


async def test_closing_ends_an_attempt_and_those_who_wait_for_it():
    attempts = Attempts()
    line = Line(attempts.open)
    caller = asyncio.ensure_future(line.connection())
    await until(lambda: attempts.begun, "an attempt")
    line.close()
    with pytest.raises(ConnectionLost, match="were closed here"):
        await caller
    assert line.is_idle


def test_a_cluster_names_its_servers_as_they_are_configured():
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        Cluster(ClientSettings("nowhere", "unit", 1000, Security()))
