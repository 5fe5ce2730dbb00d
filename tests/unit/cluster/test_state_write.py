"""One change of a state znode: whatever ZooKeeper answers, it is certain in the end what holds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from edge_broker.cluster.state.cluster_state import InSyncReplica, PartitionId, PartitionState
from edge_broker.cluster.znodes.partition_state_write import Stage, StateWrite
from edge_broker.cluster.znodes.znode_codec import LayoutFault, encode_state
from edge_broker.cluster.znodes.zookeeper import (
    ANY_VERSION,
    Answer,
    Check,
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

PARTITION = PartitionId("t", 0)
PATH = "/topics/t/0"
OLD = PartitionState(1, 3, (InSyncReplica(1, "a", 5),))
NEW = PartitionState(1, 3, (InSyncReplica(1, "a", 5), InSyncReplica(2, "b", 6)))


class Asked:
    """What was asked, and what was settled."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._then: list[Callable[[Answer], None]] = []
        self.settled: list[tuple[PartitionState | None, int]] = []
        self.write = StateWrite(
            PARTITION, "an id", self._ask, lambda state, version: self.settled.append((state, version))
        )

    def _ask(self, request: Request, then: Callable[[Answer], None]) -> None:
        self.requests.append(request)
        self._then.append(then)

    def answer(self, answer: Answer) -> None:
        self._then.pop(0)(answer)

    def reads(self, state: PartitionState, version: int) -> None:
        """This is what the znode says, and the topic is the same."""
        self.answer(node(state, version))
        assert self.write.busy, "nothing is certain yet"
        self.answer(Stat(0, 1, 1, 0))


@pytest.fixture
def asked() -> Asked:
    asked = Asked()
    asked.write.begin(NEW, 7)
    there = Check("/topics/t/an id", ANY_VERSION)
    assert asked.requests == [Multi((there, SetData(PATH, encode_state(NEW), 7)))]
    return asked


def node(state: PartitionState, version: int) -> Node:
    return Node(encode_state(state), Stat(version, 1, 2, 0))


def test_what_was_written_holds(asked: Asked) -> None:
    assert asked.write.pending == NEW
    asked.answer(Done())
    assert (asked.settled, asked.write.busy, asked.write.pending) == ([(NEW, 8)], False, None)


def test_who_was_not_first_reads_behind_a_sync(asked: Asked) -> None:
    asked.answer(MultiFailed(1, Failure.BAD_VERSION))
    asked.answer(Done())
    assert asked.requests[1:] == [Sync(PATH), Get(PATH)]
    assert asked.write.pending == NEW, "until it is certain"
    asked.reads(OLD, 9)
    assert asked.requests[-1] == Exists("/topics/t/an id"), "else it may be the next topic's"
    assert asked.settled == [(OLD, 9)]


def test_an_unknown_outcome_is_found_out_once_connected_again(asked: Asked) -> None:
    asked.answer(Failure.CONNECTION_LOSS)
    assert (asked.write.stage, asked.write.pending) == (Stage.UNKNOWN, NEW)
    asked.write.session_connected()
    asked.answer(Failure.CONNECTION_LOSS)
    asked.write.session_connected()
    asked.answer(Done())
    asked.answer(Failure.CONNECTION_LOSS)
    assert asked.settled == []
    asked.write.session_connected()
    asked.answer(Done())
    asked.reads(NEW, 8)
    assert asked.settled == [(NEW, 8)]


def test_what_is_read_behind_a_sync_that_was_refused_is_not_gone_by(asked: Asked) -> None:
    """A server that lags would have it that nothing was written, and a member too few would count."""
    asked.answer(Failure.REFUSED)
    asked.answer(Failure.REFUSED)
    assert asked.requests[1:] == [Sync(PATH)]
    assert (asked.write.stage, asked.write.pending, asked.settled) == (Stage.UNKNOWN, NEW, [])
    asked.write.session_connected()
    asked.answer(Done())
    asked.reads(NEW, 8)
    assert asked.settled == [(NEW, 8)]


def test_what_cannot_be_read_is_read_again(asked: Asked) -> None:
    asked.answer(MultiFailed(1, Failure.BAD_VERSION))
    asked.answer(Done())
    asked.answer(Failure.NO_AUTH)
    assert (asked.write.stage, asked.write.pending, asked.settled) == (Stage.UNKNOWN, NEW, [])
    asked.write.session_connected()
    asked.answer(Done())
    with pytest.raises(LayoutFault):
        asked.answer(Node(b"somebody's own", Stat(9, 1, 2, 0)))
    assert asked.write.stage is Stage.UNKNOWN
    asked.write.session_connected()
    asked.answer(Done())
    asked.reads(OLD, 10)
    assert asked.settled == [(OLD, 10)]


def test_what_is_read_of_the_next_topic_of_the_name_is_not_gone_by(asked: Asked) -> None:
    asked.answer(Failure.BAD_VERSION)
    asked.answer(Done())
    asked.answer(node(OLD, 2))
    asked.answer(Failure.NO_NODE)
    assert (asked.settled, asked.write.busy) == ([(None, -1)], False)


@pytest.mark.parametrize("lost", [Failure.CONNECTION_LOSS, Failure.REFUSED])
def test_nor_is_what_was_read_of_a_topic_that_nobody_looked_at(asked: Asked, lost: Failure) -> None:
    asked.answer(Failure.BAD_VERSION)
    asked.answer(Done())
    asked.answer(node(OLD, 9))
    asked.answer(lost)
    assert (asked.write.stage, asked.write.pending, asked.settled) == (Stage.UNKNOWN, NEW, [])
    asked.write.session_connected()
    asked.answer(Done())
    asked.reads(OLD, 9)
    assert asked.settled == [(OLD, 9)]


@pytest.mark.parametrize("position", [0, 1], ids=["another topic has its name", "no topic has it"])
def test_a_partition_that_is_gone_is_told(asked: Asked, position: int) -> None:
    asked.answer(MultiFailed(position, Failure.NO_NODE))
    assert asked.settled == [(None, -1)]


def test_behind_an_expired_session_nothing_is_certain(asked: Asked) -> None:
    asked.answer(Failure.SESSION_EXPIRED)
    assert (asked.settled, asked.write.busy) == ([], False)


def test_late_answers_are_nobodys(asked: Asked) -> None:
    asked.write.stop()
    asked.answer(Done())
    assert asked.settled == []


@pytest.mark.parametrize(("why", "count"), [(Failure.NO_AUTH, 1), (Failure.REFUSED, 1), (Failure.BAD_VERSION, 0)])
def test_refusals_are_counted_until_something_else_holds(asked: Asked, why: Failure, count: int) -> None:
    asked.answer(why)
    asked.answer(Done())
    asked.reads(OLD, 7)
    assert (asked.settled, asked.write.refusals) == ([(OLD, 7)], count)
    asked.write.begin(NEW, 7)
    asked.answer(why)
    asked.answer(Done())
    asked.reads(OLD, 7)
    assert asked.write.refusals == 2 * count
    asked.write.begin(NEW, 7)
    asked.answer(why)
    asked.answer(Done())
    asked.reads(NEW, 8)
    assert asked.write.refusals == 0, "it was done all the same"
