"""Blocks of producer ids: whatever ZooKeeper answers, and whenever, no broker is given one twice."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count, pairwise

import pytest

from edge_broker.cluster.producer_ids import BLOCK_IDS, IDS_END, ProducerIds
from edge_broker.cluster.znodes.znode_codec import PRODUCER_IDS, LayoutFault, encode_producer_ids
from edge_broker.cluster.znodes.zookeeper import (
    Answer,
    Connected,
    Create,
    Delete,
    Done,
    Event,
    Failure,
    Get,
    Node,
    Request,
    SetData,
    Stat,
    Sync,
)
from edge_broker.testing.loop import Loop
from edge_broker.testing.zookeeper import Ensemble, GoodLinks


def test_the_znode_is_as_formats_says() -> None:
    assert (PRODUCER_IDS, encode_producer_ids(3000)) == ("/producer-ids", b'{"next":3000,"version":1}')


# each answer


class Asked:
    """What was asked, and what was told."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._then: list[Callable[[Answer], None]] = []
        self.told: list[range | None] = []
        self.faults: list[LayoutFault] = []
        self.ids = ProducerIds(self._ask, self.faults.append)

    def _ask(self, request: Request, then: Callable[[Answer], None]) -> None:
        self.requests.append(request)
        self._then.append(then)

    def take(self) -> None:
        self.ids.take(self.told.append)

    def answer(self, *answers: Answer) -> Request:
        """Answer, one request after another; the last one that was asked then."""
        for answer in answers:
            (then,), self._then = self._then, []
            then(answer)
        return self.requests[-1]


@pytest.fixture
def asked() -> Asked:
    asked = Asked()
    asked.take()
    assert asked.requests == [Get(PRODUCER_IDS)]
    return asked


def node(following: int, version: int = 7, mzxid: int = 2) -> Node:
    return Node(encode_producer_ids(following), Stat(version, 1, mzxid, 0))


def set_to(following: int, version: int = 7) -> SetData:
    return SetData(PRODUCER_IDS, encode_producer_ids(following), version)


STAT = Stat(8, 1, 2, 0)


def test_a_block_lies_behind_those_that_were_taken(asked: Asked) -> None:
    assert asked.answer(node(5000)) == set_to(6000)
    assert asked.told == []
    asked.answer(STAT)
    assert asked.told == [range(5000, 6000)]


def test_the_first_block_of_all_makes_the_node(asked: Asked) -> None:
    assert asked.answer(Failure.NO_NODE) == Create(PRODUCER_IDS, encode_producer_ids(0))
    assert asked.answer(STAT) == Get(PRODUCER_IDS)
    assert asked.told == []
    assert asked.answer(node(0, 0, 4)) == set_to(5000, 0)
    asked.answer(STAT)
    assert asked.told == [range(4000, 5000)]


def test_a_block_lies_above_what_the_zxid_says_whatever_the_node_says(asked: Asked) -> None:
    assert asked.answer(node(5000, 7, 90)) == set_to(91_000)
    asked.answer(STAT)
    assert asked.told == [range(90_000, 91_000)]


@pytest.mark.parametrize(
    ("before", "failure"),
    [(node(5000), Failure.BAD_VERSION), (Failure.NO_NODE, Failure.NODE_EXISTS), (node(5000), Failure.NO_NODE)],
)
def test_who_was_not_first_reads_again_behind_a_sync(asked: Asked, before: Answer, failure: Failure) -> None:
    assert asked.answer(before, failure) == Sync(PRODUCER_IDS)
    assert asked.answer(Done()) == Get(PRODUCER_IDS)
    assert asked.answer(node(8000, 9)) == set_to(9000, 9)
    asked.answer(STAT)
    assert asked.told == [range(8000, 9000)]


@pytest.mark.parametrize("failure", [Failure.CONNECTION_LOSS, Failure.SESSION_EXPIRED, Failure.NO_AUTH])
@pytest.mark.parametrize(
    "before",
    [[], [node(5000)], [Failure.NO_NODE], [node(5000), Failure.BAD_VERSION]],
    ids=["get", "set", "make", "sync"],
)
def test_without_an_answer_there_is_no_block_and_the_next_one_is_read_anew(
    asked: Asked, before: list[Answer], failure: Failure
) -> None:
    asked.answer(*before, failure)
    assert asked.told == [None]
    asked.take()
    assert asked.requests[-1] == Get(PRODUCER_IDS)
    asked.answer(node(6000, 8), STAT)
    assert asked.told == [None, range(6000, 7000)]


def test_several_who_ask_at_once_get_a_block_each_or_none(asked: Asked) -> None:
    asked.take()
    asked.take()
    asked.answer(node(5000, 0), STAT, node(6000, 1))
    assert asked.told == [range(5000, 6000)]
    asked.answer(Failure.CONNECTION_LOSS)
    assert asked.told == [range(5000, 6000), None, None]


def test_a_node_that_somebody_removed_gives_no_id_twice(asked: Asked) -> None:
    asked.answer(node(5000), STAT)
    asked.take()
    assert asked.answer(Failure.NO_NODE) == Create(PRODUCER_IDS, encode_producer_ids(6000))
    asked.answer(STAT, node(6000, 0))
    asked.answer(STAT)
    assert asked.told == [range(5000, 6000), range(6000, 7000)]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"next":5,"version":2}', "has version 2"),
        (b'{"version":1}', "lacks a field"),
        (encode_producer_ids(-1), "has -1 as the next producer id"),
        (encode_producer_ids(IDS_END - BLOCK_IDS + 1), "has no producer ids left"),
    ],
)
def test_a_node_that_cannot_be_read_is_said_and_gives_no_block(asked: Asked, data: bytes, said: str) -> None:
    asked.answer(Node(data, STAT))
    assert asked.told == [None]
    assert said in str(asked.faults[0])


def test_the_last_ids_are_given(asked: Asked) -> None:
    asked.answer(node(IDS_END - BLOCK_IDS), STAT)
    assert asked.told == [range(IDS_END - BLOCK_IDS, IDS_END)]


# an ensemble


class Links(GoodLinks):
    """A network that a test breaks, a way at a time."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__(dice, 3.0)
        self.is_up = self.is_down = True

    def up(self, server: int) -> bool:
        return self.is_up

    def down(self, server: int) -> bool:
        return self.is_down


class Member:
    """A broker's session, and the blocks that it was told of."""

    def __init__(self, ensemble: Ensemble, dice: random.Random) -> None:
        self.links = Links(dice)
        self.blocks: list[range] = []
        self.refused = 0
        self.writes_unknown = 0
        self.connected = False
        self._tokens = count(1)
        self._then: dict[int, tuple[Request, Callable[[Answer], None]]] = {}
        self.client = ensemble.client(self, 2000, self.links)
        self.faults: list[LayoutFault] = []
        self.ids = ProducerIds(self._ask, self.faults.append)

    def take(self) -> None:
        self.ids.take(self._told)

    def _told(self, block: range | None) -> None:
        if block is None:
            self.refused += 1
        else:
            self.blocks.append(block)

    def _ask(self, request: Request, then: Callable[[Answer], None]) -> None:
        token = next(self._tokens)
        self._then[token] = request, then
        self.client.ask(token, request)

    def answer_received(self, token: int, answer: Answer) -> None:
        request, then = self._then.pop(token)
        self.writes_unknown += answer is Failure.CONNECTION_LOSS and isinstance(request, SetData | Create)
        then(answer)

    def event_received(self, event: Event) -> None:
        self.connected = isinstance(event, Connected)


def test_members_that_ask_at_once_get_different_blocks() -> None:
    loop, dice = Loop(), random.Random(1)
    ensemble = Ensemble(loop, dice)
    members = [Member(ensemble, dice) for _ in range(3)]
    loop.advance(500)
    for member in members:
        member.take()
    loop.advance(2000)
    found = sorted(block.start for member in members for block in member.blocks)
    assert found == [1000, 2000, 3000]


def play(seed: int) -> tuple[list[range], int]:
    """Three members take blocks while connections break this way and that: the blocks, and how many writes are unknown.

    Connections break for as long as a client notices, and now and then until its session is over.
    """
    loop, dice = Loop(), random.Random(seed)
    ensemble = Ensemble(loop, dice)
    for server in ensemble.servers:
        server.lag_ms = 40.0
    members = [Member(ensemble, dice) for _ in range(3)]
    loop.advance(500)
    for _ in range(60):
        member = dice.choice(members)
        for _ in range(dice.randint(1, 2)):
            member.take()
        if dice.random() < 0.5:
            loop.advance(dice.random() * 15)
            setattr(member.links, dice.choice(["is_up", "is_down"]), False)
            loop.advance(dice.choice([1600, 5000]))
            member.links.is_up = member.links.is_down = True
        loop.advance(dice.random() * 200)
    loop.advance(20_000)
    assert all(member.connected and not member.faults for member in members)
    blocks = [block for member in members for block in member.blocks]
    return blocks, sum(member.writes_unknown for member in members)


def test_no_id_is_given_twice_whatever_becomes_of_connections() -> None:
    unknown = skipped = 0
    for seed in range(40):
        blocks, writes_unknown = play(seed)
        in_order = sorted(blocks, key=lambda block: block.start)
        assert all(one.stop <= other.start for one, other in pairwise(in_order)), (seed, in_order)
        assert all(len(block) == BLOCK_IDS for block in in_order)
        unknown += writes_unknown
        skipped += sum(other.start - one.stop for one, other in pairwise(in_order)) // BLOCK_IDS
    assert unknown > 40, "the schedules must leave outcomes unknown"
    assert 0 < skipped < unknown, "some of those were done, some were not"


FORGERIES: dict[str, list[Request]] = {
    "removed": [Delete(PRODUCER_IDS)],
    "forged": [Delete(PRODUCER_IDS), Create(PRODUCER_IDS, encode_producer_ids(0))],
    "set back": [SetData(PRODUCER_IDS, encode_producer_ids(0), -1)],
    "set back a little": [SetData(PRODUCER_IDS, encode_producer_ids(1), -1)],
}


@pytest.mark.parametrize("how", FORGERIES)
def test_a_stranger_who_removes_or_forges_the_node_has_no_board_give_an_id_again(how: str) -> None:
    """Each board that takes is a new one, as after a restart: it remembers no block."""
    loop, dice = Loop(), random.Random(3)
    ensemble = Ensemble(loop, dice)
    blocks = []
    for _ in range(6):
        member = Member(ensemble, dice)
        loop.advance(500)
        member.take()
        loop.advance(2000)
        blocks += member.blocks
        for request in FORGERIES[how]:
            member.client.ask(_unanswered(member), request)
        loop.advance(500)
    in_order = sorted(blocks, key=lambda block: block.start)
    assert len(in_order) == 6
    assert all(one.stop <= other.start for one, other in pairwise(in_order)), in_order


def _unanswered(member: Member) -> int:
    token = next(member._tokens)
    member._then[token] = Get(PRODUCER_IDS), lambda answer: None
    return token


def test_no_id_below_those_that_the_disk_has_is_taken(asked: Asked) -> None:
    asked.answer(Failure.CONNECTION_LOSS)
    asked.ids.take(asked.told.append, 7000)
    assert asked.answer(node(5000)) == set_to(8000)
    asked.answer(STAT)
    assert asked.told == [None, range(7000, 8000)]
