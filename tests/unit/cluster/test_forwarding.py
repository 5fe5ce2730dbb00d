"""When a journal is forwarded, and to whom: one request at a time, again and again until it is taken."""

from __future__ import annotations

import pytest

from edge_broker.cluster.effects import Effect, Forget, Forward
from edge_broker.cluster.ledger_forwarding import ANSWER_MS, PAUSE_MS, PAUSE_MS_MAX, Forwarding, Stage
from edge_broker.errors import ErrorCode

REFUSED = ErrorCode.NOT_ENOUGH_REPLICAS


class Journal:
    def __init__(self, *, waits: bool = True) -> None:
        self.waits = waits


class Played:
    """A forwarding, and what it wants."""

    def __init__(self) -> None:
        self.out: list[Effect] = []
        self.forwarding = Forwarding(self.out.append)
        self.forwarding.journal = self.journal = Journal()

    def tick(self, now_ms: float, leader: int | None = 1) -> list[Effect]:
        """What time brings about."""
        self.forwarding.tick(now_ms, leader)
        return self.taken()

    def taken(self) -> list[Effect]:
        found, self.out[:] = list(self.out), []
        return found


@pytest.fixture
def played() -> Played:
    return Played()


def test_what_waits_is_forwarded_to_who_leads_and_forgotten_once_it_is_taken(played: Played) -> None:
    assert played.tick(0.0, leader=3) == [Forward(3, 1)]
    assert played.tick(100.0, leader=3) == []
    played.forwarding.answer_received(1, ErrorCode.NONE, 7, 200.0)
    assert played.taken() == [Forget(7)]
    assert played.tick(300.0) == []
    played.forwarding.entries_forgotten(400.0, done=True)
    assert played.tick(500.0, leader=2) == [Forward(2, 2)]


def test_nothing_is_forwarded_where_nothing_waits_or_nobody_leads(played: Played) -> None:
    assert played.tick(0.0, leader=None) == []
    played.journal.waits = False
    assert played.tick(100.0) == []


def test_nothing_is_forgotten_that_was_not_taken(played: Played) -> None:
    for error in (REFUSED, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT):
        now_ms = 10_000.0 * error
        ((_, turn),) = played.tick(now_ms)
        played.forwarding.answer_received(turn, error, 7, now_ms)
        assert played.taken() == []
        assert played.forwarding.refused == error.name
        played.tick(now_ms + PAUSE_MS_MAX, leader=None)


def test_what_was_refused_comes_again_after_pauses_that_grow_and_end_with_the_first_that_is_taken(
    played: Played,
) -> None:
    now_ms, pauses, turn = 0.0, [], 0
    for _ in range(8):
        begun = now_ms
        while not (wanted := played.tick(now_ms)):
            now_ms += 50.0
        pauses.append(now_ms - begun)
        ((_, turn),) = wanted
        played.forwarding.answer_received(turn, REFUSED, 1, now_ms)
    assert pauses[:4] == [0.0, PAUSE_MS, 2 * PAUSE_MS, 4 * PAUSE_MS]
    assert pauses[-1] == PAUSE_MS_MAX
    ((_, turn),) = played.tick(now_ms + PAUSE_MS_MAX)
    played.forwarding.answer_received(turn, ErrorCode.NONE, 1, now_ms)
    assert played.forwarding.refused == ""
    played.forwarding.entries_forgotten(now_ms, done=False)
    assert played.forwarding.refused
    assert played.tick(now_ms + PAUSE_MS - 1) == [Forget(1)]
    assert played.tick(now_ms + PAUSE_MS) == [Forward(1, turn + 1)]


def test_an_answer_that_comes_too_late_is_none(played: Played) -> None:
    assert played.tick(0.0) == [Forward(1, 1)]
    assert played.tick(ANSWER_MS) == []
    assert played.forwarding.stage is Stage.PAUSING
    played.forwarding.answer_received(1, ErrorCode.NONE, 9, ANSWER_MS + 1)
    assert played.taken() == []
    assert played.tick(ANSWER_MS + PAUSE_MS) == [Forward(1, 2)]
    played.forwarding.answer_received(1, ErrorCode.NONE, 9, ANSWER_MS + PAUSE_MS + 1)
    assert played.taken() == [], "of an earlier request"
    played.forwarding.answer_received(2, ErrorCode.NONE, 9, ANSWER_MS + PAUSE_MS + 2)
    assert played.taken() == [Forget(9)]
