"""When a leader gets one connection more, and which lanes stay where they are then."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from kafka_wire.connection.tcp_connect import LinkFill, WindowUse
from kafka_wire.partitions import TopicPartition
from mirror.link.bbr_pacing import Filling, OtherTraffic, rate_max
from mirror.link.link_model import LEAST_BYTES, PACE_S, Link, Pace
from mirror.partition.send_state import BACKING_OFF, SENDING
from mirror.partition.stream import PartitionStream
from mirror.producer.connection_assignment import CONNECTIONS_MAX, DOWN_S, JUDGED, ConnectionAssignment
from mirror.producer.failures.refusals import Refusals
from mirror.producer.leader_placement import LeaderPlacement
from mirror.producer.target_connection import SendQueue, TargetConnection

POLICY = {"cleanup.policy": "delete"}
WAITING = LinkFill(100_000, 0.2, 0.3, begins=False)


class Full:
    """A pipe as far as it is looked at when there are more."""

    def __init__(self, number=0, *, loss=0.0, held_up=False, queued=False, undaunted=False, lanes=()):
        self.undaunted, self.beside, self.alone = undaunted, None, None
        self.node, self.number, self.loss, self.streams = 1, number, loss, set(lanes)
        self.held_up, self.is_queued, self.forgot, self.sent = held_up, queued, 0, 1000
        self.pace, self.under_way_bytes, self.is_free, self.is_active = Pace(), 0, False, True
        self.is_shut, self.is_up = False, True

    def segments(self):
        return self.sent, int(self.loss * self.sent)

    def was_held_up(self):
        return self.held_up

    def bear_loss(self, *, is_lossy):
        self.bears = is_lossy
        return is_lossy and self.undaunted

    def forget_loss(self):
        self.forgot += 1

    def release(self, lane):
        self.streams.discard(lane)

    def fill(self, beside, alone_bytes_s):
        self.beside, self.alone = beside, alone_bytes_s


def backlogged(number):
    lane = PartitionStream(TopicPartition("t", number), "lab.t", POLICY)
    lane.assigned, lane.backlog_until = (0, 1), asyncio.get_running_loop().time() + 60
    return lane


def dealing_of(*pipes):
    """Who deals among these; `considered` are the lanes that are to move."""
    link, considered = Link(4_000_000), []
    dealing = ConnectionAssignment(link, Full, considered.append)
    dealing._target_connections = {(pipe.node, pipe.number): pipe for pipe in pipes}
    return dealing, link, considered


def carry(link, now):
    """Something is acknowledged, and the link is full again."""
    link.request_acked(now + 0.1, link.request_sent(now, 10_000))
    link.request_sent(now + 0.1, link.limit_bytes - link.under_way_bytes)


@pytest.mark.parametrize(
    ("why", "connections"),
    [
        ({"loss": 0.02}, 4),
        ({"loss": 0.02, "undaunted": True}, 2),
        ({"held_up": True}, 4),
        ({}, 1),
        ({"loss": 0.02, "queued": True}, 1),
    ],
)
async def test_a_full_pipe_that_does_not_fill_the_link_gets_one_more_each_second(why, connections):
    dealing, link, _ = dealing_of(Full(**why))
    for second in range(8):
        carry(link, second)
        before = dealing.connections
        dealing.grow()
        assert dealing.connections <= before + 1
    assert dealing.connections == connections <= CONNECTIONS_MAX
    assert {pipe.bears for pipe in dealing.target_connections} == {"loss" in why and "queued" not in why}
    assert {pipe.beside for pipe in dealing.target_connections} == {
        OtherTraffic.BACKLOGS if connections > 1 else OtherTraffic.NOTHING
    }


@pytest.mark.parametrize(
    ("kinds", "bounded"),
    [("bb", False), ("ss", False), ("bs", True), ("bu", True), ("uu", False), ("", False)],
)
async def test_an_only_connection_leaves_little_waiting_where_something_goes_beside_a_backlog(kinds, bounded):
    """b: with a backlog; s: sparse; u: urgent, whatever it has."""
    lanes = [backlogged(number) for number in range(len(kinds))]
    for lane, kind in zip(lanes, kinds, strict=True):
        lane.urgent = kind == "u"
        lane.backlog_until *= kind != "s"
    dealing, link, _ = dealing_of(pipe := Full(lanes=lanes))
    carry(link, 0)
    dealing.grow()
    assert (dealing.connections, pipe.beside) == (1, OtherTraffic.TRICKLES if bounded else OtherTraffic.NOTHING)


async def test_a_link_that_is_down_is_no_lossy_one():
    pipe = Full(loss=0.9)
    dealing, link, _ = dealing_of(pipe)
    carry(link, 0)
    pipe.loss = 0.0
    dealing.grow()
    pipe.loss = 0.9
    for _ in range(DOWN_S):
        dealing.grow()
    assert (dealing.connections, link.is_lossy, pipe.forgot) == (1, False, 1)


async def test_what_a_link_loses_is_borne_until_it_loses_nothing_more():
    pipe = Full(loss=0.02)
    dealing, link, _ = dealing_of(pipe)
    seen = []
    told = [
        (0.02, 1000, False),
        (0.0, 50, False),
        (0.02, 60, True),
        (0.0, JUDGED - 1, False),
        (0.001, JUDGED, False),
        (0.02, 1000, True),
        (0.02, 1000, False),
    ]
    for second, (pipe.loss, pipe.sent, pipe.is_queued) in enumerate(told):
        carry(link, second)
        dealing.grow()
        seen.append(pipe.bears)
    assert seen == [True, True, True, True, False, False, True]


async def test_a_fair_share_of_the_lanes_stays_where_it_is():
    lanes = [backlogged(number) for number in range(5)]
    dealing, link, _ = dealing_of(Full(held_up=True, lanes=lanes))
    carry(link, 0)
    dealing.grow()
    assert dealing.connections == 2
    assert sorted(lane.assigned for lane in lanes) == [(0, 1)] * 2 + [(0, 2)] * 3


class Told:
    """A connection whose kernel tells this."""

    is_closed = False

    def __init__(self, *told):
        self.told = list(told)

    def window_use(self):
        return self.told.pop(0)


@pytest.mark.parametrize(
    ("after", "is_held_up"),
    [
        (WindowUse(2.0, 0.8, 0.11, 0.1), True),
        (WindowUse(2.0, 0.3, 0.11, 0.1), False),
        (WindowUse(2.0, 0.8, 0.2, 0.1), False),  # packets wait on the link: it is full
        (WindowUse(1.1, 0.1, 0.11, 0.1), False),
        (None, False),
    ],
)
def test_a_window_that_is_shut_most_of_the_time_while_nothing_waits_on_the_link_holds_up(after, is_held_up):
    pipe = TargetConnection.__new__(TargetConnection)
    pipe._connection, pipe._windowed = Told(WindowUse(1.0, 0.0, 0.1, 0.1), after), None
    assert pipe.was_held_up() is False
    assert pipe.was_held_up() is is_held_up
    assert pipe.is_queued is (after is not None and after.round_trip_s == 0.2)


def waiting(number):
    """A lane with several batches in its buffer."""
    lane = backlogged(number)
    lane.assigned, lane.buffer_bytes = (0, 2), 10**9
    return lane


@pytest.mark.parametrize(
    ("is_slow", "is_other_busy", "leaves"), [(True, False, True), (True, True, False), (False, False, False)]
)
async def test_a_backlog_leaves_a_slow_connection_for_one_that_has_none(is_slow, is_other_busy, leaves):
    slow, other = Full(0), Full(1)
    dealing, link, considered = dealing_of(slow, other)
    dealing.connections = 2
    lane = waiting(0)
    slow.streams, slow.under_way_bytes = {lane}, 8_000
    other.streams, other.under_way_bytes = ({waiting(1)} if is_other_busy else set()), 8_000
    for second in range(PACE_S + 1):
        carry(link, second)
        slow.pace.delivered_bytes += 100 if is_slow else 10_000_000
        dealing.grow()
    assert (slow.pace.is_slow, other.is_free, lane.leaves) == (is_slow, not is_other_busy, leaves)
    assert (lane in considered) is is_slow
    assert dealing.emptiest(1, 0, 2, but=slow) is other


async def test_a_connection_that_the_broker_does_not_let_in_carries_nothing_while_there_is_another():
    """As by max.connections.per.ip. In an outage none is there, and lanes wait for each of them."""
    busy, shut = Full(0, lanes=[waiting(number) for number in range(4)]), Full(1)
    dealing, _, _ = dealing_of(busy, shut)
    assert dealing.has_another(shut)
    busy.is_up = False
    assert not dealing.has_another(shut)
    assert dealing.emptiest(1, 0, 2) is shut
    shut.is_shut = True
    assert dealing.emptiest(1, 0, 2) is busy
    assert dealing.emptiest(1, 0, 2, but=busy) is busy
    assert dealing.emptiest(1, 1, 2) is busy, "though that is kept for others"
    busy.is_shut = True
    assert dealing.emptiest(1, 1, 2) is shut


async def test_a_connection_that_is_there_again_has_its_lanes_dealt_anew():
    """When it was lost there was no backlog yet; what is under way, or rests, stays."""
    other, back = Full(0), Full(1)
    lanes = [waiting(number) for number in range(6)]
    for lane in lanes:
        lane.assigned, lane.connection, lane.send_state = (1, 2), back, SENDING
        back.streams.add(lane)
    lanes[4].send_state, lanes[5].packing = BACKING_OFF, True
    other.is_free = True
    dealing, link, _ = dealing_of(other, back)
    link.is_lossy, dealing._is_undaunted, considered = True, True, []
    refusals = Refusals(link, None, print, batch_bytes_max=1, buffer_bytes_max=1)
    refusals.block(lanes[0])
    sender = SimpleNamespace(consider=considered.append)
    LeaderPlacement(None, dealing, refusals, (), print, sender).reassign(back)
    assert not lanes[0].blocked
    assert set(considered) == set(lanes[:4])
    assert {lane.assigned for lane in lanes[:4]} == {(0, 2)}
    assert {lanes[4], lanes[5]} <= back.streams
    assert len(other.streams) == len(back.streams) == 3


def test_a_connection_is_slow_that_is_busy_for_long_and_carries_little():
    pace = Pace()
    for second in range(3 * PACE_S):
        pace.tick(10_000, is_busy=second != PACE_S)
        pace.delivered_bytes += 4_000
        assert pace.is_slow is (second == 2 * PACE_S or second > 2 * PACE_S), second
    pace.delivered_bytes += 20_000
    pace.tick(10_000, is_busy=True)
    assert not pace.is_slow


@pytest.mark.parametrize(
    ("is_ready", "under_way", "is_free", "is_active"),
    [(True, 0, True, True), (False, 8_000, False, True), (False, 8_000, True, False), (False, 0, False, False)],
)
@pytest.mark.parametrize("is_up", [True, False, None])
async def test_a_connection_shares_the_link_while_it_is_up_and_has_a_backlog(
    is_ready, under_way, is_free, is_active, is_up
):
    pipe = TargetConnection.__new__(TargetConnection)
    pipe._connection = None if is_up is None else SimpleNamespace(is_closed=not is_up)
    pipe.ready, pipe.under_way_bytes, pipe.is_free = SendQueue(), under_way, is_free
    if is_ready:
        pipe.ready.add(backlogged(0))
    assert pipe.is_active is (is_active and bool(is_up))


@pytest.mark.parametrize(
    ("beside", "is_free", "filled", "told"),
    [
        (OtherTraffic.BACKLOGS, False, WAITING, rate_max(WAITING)),
        (OtherTraffic.BACKLOGS, True, WAITING, None),
        (OtherTraffic.NOTHING, False, WAITING, None),
        (OtherTraffic.BACKLOGS, False, None, None),
    ],
)
async def test_a_backlog_beside_others_leaves_little_waiting_and_what_trickles_is_not_held_up(
    beside, is_free, filled, told
):
    pipe, rates = TargetConnection.__new__(TargetConnection), []
    pipe.is_free = is_free
    pipe._connection = SimpleNamespace(link_fill=lambda: filled, limit_rate=rates.append)
    pipe._filling = Filling(asyncio.get_running_loop().time())
    pipe.fill(beside, None)
    assert rates == [told]


async def test_who_begins_anew_is_bounded_before_it_does():
    pipe, told = TargetConnection.__new__(TargetConnection), []
    pipe.is_free, pipe._filling = False, Filling(asyncio.get_running_loop().time())
    pipe._connection = SimpleNamespace(
        link_fill=lambda: WAITING, limit_rate=told.append, fill_anew=lambda: told.append("anew")
    )
    pipe.fill(OtherTraffic.BACKLOGS, 1_000_000)
    assert told == [1_100_000, "anew"]


@pytest.mark.parametrize(("free", "alone"), [((False, True), (True, False)), ((False, False), (False, False))])
async def test_who_alone_has_a_backlog_is_told_what_the_link_carries(free, alone):
    pipes = Full(0), Full(1)
    for number, (pipe, is_free) in enumerate(zip(pipes, free, strict=True)):
        if not is_free:
            pipe.streams.add(waiting(number))
    dealing, link, _ = dealing_of(*pipes)
    carry(link, 0)
    dealing.grow()
    assert tuple(pipe.alone is not None for pipe in pipes) == alone
    assert {pipe.alone for pipe in pipes} <= {link.rate, None}


async def test_who_joins_with_a_backlog_shares_the_link_at_once():
    one, other = Full(0), Full(1)
    one.is_free = other.is_free = True
    dealing, _, _ = dealing_of(one, other)
    for lane, node in ((waiting(0), 1), (backlogged(1), 1)):
        dealing.connections = 2
        dealing.join(lane, node)
    assert (one.is_free, other.is_free) == (False, True)


@pytest.mark.parametrize(("leaves", "taken"), [(True, 0), (False, 1)])
async def test_a_slow_connection_has_little_under_way_while_a_lane_leaves_it_else_it_stayed_slow(leaves, taken):
    link = Link(10**9)
    link.request_acked(0.1, link.request_sent(0.0, 100_000))
    pipe = TargetConnection.__new__(TargetConnection)
    pipe.number = 0
    pipe.sparse, pipe.ready, pipe.lingering = SendQueue(), SendQueue(), {}
    pipe.ready.add(backlogged(0))
    pipe.under_way_bytes, pipe.pace = LEAST_BYTES, Pace()
    pipe.pace.is_slow, pipe.streams = True, {backlogged(0)}
    for lane in pipe.streams:
        lane.leaves = leaves
    turn = turn_of(pipe, link, 2)
    pipe._load()
    assert len(turn.taken) == taken


class Turn:
    """Lanes' turns as far as a pipe loads them: `taken` has how much each was asked for."""

    def __init__(self):
        self.taken = []

    def take(self, lane, size):
        self.taken.append(size)


def turn_of(pipe, link, connections):
    """The turns of lanes of which this pipe carries one, beside others with a backlog."""
    pipe._source, pipe._connections, pipe._link = Turn(), SimpleNamespace(active=connections), link
    return pipe._source


@pytest.mark.parametrize(
    ("connections", "under_way", "taken"),
    [(1, 0, 250_000), (4, 0, 100_000), (4, 340_000, 100_000), (4, 360_000, None), (4, 400_000, None)],
)
async def test_a_connection_has_its_share_of_what_may_be_under_way_in_batches_of_a_quarter(
    connections, under_way, taken
):
    link = Link(10**9)
    link.request_acked(0.1, link.request_sent(0.0, 100_000))
    link.is_lossy = True
    share = link.limit_bytes / connections
    pipe = TargetConnection.__new__(TargetConnection)
    pipe.number = 0
    pipe.sparse, pipe.ready, pipe.lingering = SendQueue(), SendQueue(), {}
    pipe.ready.add(backlogged(0))
    pipe.streams = set()
    pipe.under_way_bytes, pipe.pace = int(under_way * share / 400_000), Pace()
    turn = turn_of(pipe, link, connections)
    pipe._load()
    assert turn.taken == ([] if taken is None else [pytest.approx(taken * (share / 400_000 if connections > 1 else 1))])
