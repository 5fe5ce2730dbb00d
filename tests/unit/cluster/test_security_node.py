"""The znode of users and ACLs: whatever is read in whatever order, it is never taken for what it is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from edge_broker.cluster.znodes.security_znode import NodeReading, NodeState, SecurityNode
from edge_broker.cluster.znodes.znode_codec import (
    FORMAT,
    SECURITY,
    SECURITY_STATE,
    encode,
    encode_format,
    with_security,
)
from edge_broker.cluster.znodes.zookeeper import (
    Answer,
    Create,
    Done,
    Exists,
    Failure,
    Get,
    Multi,
    MultiFailed,
    Node,
    Request,
    SetData,
    Stat,
    Sync,
)

STAT = Stat(3, 1, 2, 0)
BEFORE = Node(encode_format("site"), STAT)
MADE = Node(with_security(BEFORE), Stat(4, 1, 3, 0))
STATE = Node(b"state", Stat(7, 5, 6, 0))
THERE = NodeReading(NodeState.THERE, b"state", 7)
GET, EXISTS = Get(SECURITY_STATE, watch=True), Exists(SECURITY_STATE, watch=True)


class Asked:
    """What was asked, in order, and what was told."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Request, Callable[[Answer], None]]] = []
        self.told: list[NodeReading] = []
        self.held: list[bool] = []
        self.node = SecurityNode(lambda request, then: self.waiting.append((request, then)), self.told.append)
        self.node.begin()

    def answer(self, *pairs: tuple[Request, Answer]) -> Asked:
        """Answer what is asked, one request after another."""
        for expected, answer in pairs:
            request, then = self.waiting.pop(0)
            assert request == expected
            then(answer)
        return self

    def read(self, *pairs: tuple[Request, Answer]) -> Asked:
        """The same behind a Sync."""
        return self.answer((Sync(), Done()), *pairs)


NO_NODE = Failure.NO_NODE


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        ([(Get(FORMAT), MADE), (GET, STATE)], THERE),
        ([(Get(FORMAT), BEFORE), (GET, STATE), (Get(FORMAT), MADE)], THERE),  # made between two readings
        ([(Get(FORMAT), BEFORE), (GET, STATE), (Get(FORMAT), BEFORE)], NodeReading(NodeState.FOREIGN, b"state", 7)),
        ([(Get(FORMAT), BEFORE), (GET, NO_NODE), (EXISTS, NO_NODE)], NodeReading(NodeState.NEVER_MADE)),
        ([(Get(FORMAT), MADE), (GET, NO_NODE), (EXISTS, NO_NODE)], NodeReading(NodeState.LOST)),
        ([(Get(FORMAT), NO_NODE), (GET, NO_NODE), (EXISTS, NO_NODE)], NodeReading(NodeState.BARRED)),
        ([(Get(FORMAT), MADE), (GET, Failure.NO_AUTH)], NodeReading(NodeState.BARRED)),
        ([(Get(FORMAT), Node(b"?", STAT)), (GET, STATE), (Get(FORMAT), Node(b"?", STAT))],
         NodeReading(NodeState.FOREIGN, b"state", 7)),
        ([(Get(FORMAT), BEFORE), (GET, NO_NODE), (EXISTS, STAT), (Get(FORMAT), MADE), (GET, STATE)], THERE),
    ],
)  # fmt: skip
def test_what_is_read(answers: list[tuple[Request, Answer]], found: NodeReading) -> None:
    asked = Asked().read(*answers)
    assert asked.told == [found]
    assert not asked.waiting


def test_it_is_made_with_its_parent_and_the_format_that_says_so_at_once_or_not_at_all() -> None:
    asked = Asked().read((Get(FORMAT), BEFORE), (GET, NO_NODE), (EXISTS, NO_NODE))
    asked.node.make(b"new", asked.held.append)
    wanted = Multi((SetData(FORMAT, MADE.data, 3), Create(SECURITY, encode({})), Create(SECURITY_STATE, b"new")))
    asked.answer((wanted, MultiFailed(1, Failure.NODE_EXISTS))).read((Get(FORMAT), MADE), (GET, STATE))
    assert asked.held == [False], "another broker was first"
    assert asked.told[-1] == THERE


def test_what_is_written_holds_or_is_told_not_to() -> None:
    asked = Asked().read((Get(FORMAT), MADE), (GET, STATE))
    asked.node.write(b"new", 7, asked.held.append)
    asked.answer((SetData(SECURITY_STATE, b"new", 7), Stat(8, 5, 9, 0)))
    assert asked.held == [True]
    assert asked.told[-1] == NodeReading(NodeState.THERE, b"new", 8)
    asked.node.write(b"newer", 8, asked.held.append)
    asked.answer((SetData(SECURITY_STATE, b"newer", 8), Failure.BAD_VERSION))
    asked.read((Get(FORMAT), MADE), (GET, Node(b"other", Stat(9, 5, 10, 0))))
    assert asked.held == [True, False]


@pytest.mark.parametrize("holds", [True, False])
def test_an_unknown_outcome_is_told_behind_a_sync_of_the_next_connection(holds: bool) -> None:
    asked = Asked().read((Get(FORMAT), MADE), (GET, STATE))
    asked.node.write(b"new", 7, asked.held.append)
    asked.node.end()
    asked.answer((SetData(SECURITY_STATE, b"new", 7), Failure.CONNECTION_LOSS))
    assert asked.held == []
    asked.node.begin()
    asked.read((Get(FORMAT), MADE), (GET, Node(b"new", Stat(8, 5, 9, 0)) if holds else STATE))
    assert asked.held == [holds]


def test_behind_a_refused_sync_nothing_is_read_until_it_is_asked_again() -> None:
    asked = Asked().answer((Sync(), Failure.REFUSED))
    assert not asked.waiting
    asked.node.retry()
    asked.read((Get(FORMAT), MADE), (GET, STATE))
    assert asked.told == [THERE]
    asked.node.retry()
    assert not asked.waiting


@pytest.mark.parametrize(
    "answers",
    [
        [(Get(FORMAT), Failure.REFUSED)],
        [(Get(FORMAT), MADE), (GET, Failure.REFUSED)],
        [(Get(FORMAT), BEFORE), (GET, STATE), (Get(FORMAT), Failure.REFUSED)],
        [(Get(FORMAT), MADE), (GET, NO_NODE), (EXISTS, Failure.REFUSED)],
    ],
)
def test_what_fails_says_nothing_and_is_read_again(answers: list[tuple[Request, Answer]]) -> None:
    asked = Asked().read(*answers)
    assert asked.told == []
    asked.node.retry()
    asked.read((Get(FORMAT), MADE), (GET, STATE))
    assert asked.told == [THERE]


def test_answers_of_an_earlier_connection_tell_nothing() -> None:
    asked = Asked().read((Get(FORMAT), MADE))
    asked.node.end()
    asked.node.begin()
    asked.answer((GET, Node(b"old", STAT)))
    assert asked.told == []
    asked.read((Get(FORMAT), MADE), (GET, STATE))
    assert asked.told == [THERE]
