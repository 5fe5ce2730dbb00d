"""A disk writes down what a rebuild may have lost before anyone leads, however often its board starts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from edge_broker.cluster.effects import Effect, Enter, LostRange
from edge_broker.cluster.rebuild.rebuilt_losses import RebuiltLosses
from edge_broker.cluster.state.cluster_state import NO_LEADER, Identity, InSyncReplica, PartitionId, PartitionState
from edge_broker.cluster.znodes.znode_codec import (
    FORMAT,
    LOST,
    Format,
    LayoutFault,
    MayBeLost,
    decode,
    decode_format,
    decode_lost,
    encode,
    encode_lost,
    encode_rebuilt_format,
    encode_state,
    lost_path,
    state_path,
    topic_id_path,
)
from edge_broker.cluster.znodes.zookeeper import (
    ANY_VERSION,
    Answer,
    Check,
    Children,
    Delete,
    Done,
    Failure,
    Get,
    Multi,
    MultiFailed,
    Names,
    Node,
    Request,
    SetData,
    Stat,
)

P = PartitionId("t", 0)
PATH = lost_path(P)
ME = Identity(3, "dir-3", (8, 17), "site")
ENTRY = InSyncReplica(3, "dir-3", 17)
STATE = PartitionState(NO_LEADER, 1 << 20, (ENTRY,))
LOSS = MayBeLost(P, "id-t", ENTRY, STATE)
STAT = Stat(0, 1, 1, 0)
NODE = Node(encode_lost(LOSS), STAT)
WRITE = Multi(
    (
        Check(topic_id_path("t", "id-t"), ANY_VERSION),
        SetData(state_path(P), encode_state(STATE), 0),
        Delete(PATH, ANY_VERSION),
    )
)


class Board:
    """The losses of one board, with a log of ten records that is open."""

    def __init__(self) -> None:
        self.asked: list[tuple[Request, Any]] = []
        self.out: list[Effect] = []
        self.faults: list[LayoutFault] = []
        self.tokens = iter(range(1, 100))
        self.log = SimpleNamespace(online=True, log_end_offset=10)
        self.partitions: dict[PartitionId, Any] = {
            P: SimpleNamespace(topic=SimpleNamespace(topic_id="id-t"), log=self.log)
        }
        self.losses = RebuiltLosses(
            lambda request, then: self.asked.append((request, then)),
            self.out.append,
            lambda: next(self.tokens),
            self.faults.append,
        )

    def answers(self, request: Request, answer: Answer) -> None:
        """Answer the only request that is open."""
        ((asked, then),) = self.asked
        assert asked == request
        self.asked.clear()
        then(answer)

    def reads(self, node: Answer = NODE) -> None:
        self.losses.read_again(ME)
        self.answers(Children(LOST), Names(("t-0",)))
        self.answers(Get(PATH), node)
        self.losses.tick(self.partitions)

    def enters(self) -> None:
        (effect,) = self.out
        self.out.clear()
        assert isinstance(effect, Enter)
        assert (effect.partition, effect.cause, effect.losses) == (
            P,
            "unclean_election",
            (LostRange(1 << 20, 10, None),),
        )
        assert self.losses.losses_recorded(effect.token)
        assert not self.losses.losses_recorded(effect.token), "once"


def test_the_ledger_has_it_then_the_state_names_the_disk() -> None:
    board = Board()
    board.reads()
    assert not board.asked, "nothing is written before the ledger has it"
    board.enters()
    board.answers(WRITE, Done())
    board.losses.tick(board.partitions)
    assert (board.asked, board.out) == ([], [])


@pytest.mark.parametrize("lost_at", ["entry", "write"])
def test_a_connection_that_is_lost_meanwhile_has_all_of_it_done_again(lost_at: str) -> None:
    board = Board()
    board.reads()
    if lost_at == "write":
        board.enters()
        board.answers(WRITE, Failure.CONNECTION_LOSS)
    board.out.clear()
    board.reads()
    board.enters()
    board.answers(WRITE, Done())


@pytest.mark.parametrize("failed", [MultiFailed(1, Failure.BAD_VERSION), MultiFailed(0, Failure.NO_NODE)])
def test_a_state_that_another_one_has_replaced_stays_and_so_does_the_end_of_a_topic(failed: MultiFailed) -> None:
    board = Board()
    board.reads()
    board.enters()
    board.answers(WRITE, failed)
    board.answers(Delete(PATH), Done())


def test_it_waits_for_the_log_of_that_very_topic() -> None:
    board = Board()
    board.log.online = False
    board.reads()
    assert not board.out
    board.log.online = True
    board.partitions[P].topic.topic_id = "another"
    board.losses.tick(board.partitions)
    assert not board.out
    board.partitions[P].topic.topic_id = "id-t"
    board.losses.tick(board.partitions)
    board.enters()


OTHERS = {
    "another broker": LOSS._replace(entry=(two := InSyncReplica(2, "dir-2", 16)), state=STATE._replace(in_sync=(two,))),
    "another disk": LOSS._replace(entry=(new := InSyncReplica(3, "new", 17)), state=STATE._replace(in_sync=(new,))),
    "a registration that this disk has not": LOSS._replace(
        entry=(old := InSyncReplica(3, "dir-3", 9)), state=STATE._replace(in_sync=(old,))
    ),
}


@pytest.mark.parametrize("loss", OTHERS.values(), ids=OTHERS)
def test_what_another_disk_is_to_write_down_is_left_to_it(loss: MayBeLost) -> None:
    board = Board()
    board.reads(Node(encode_lost(loss), STAT))
    assert not board.out


@pytest.mark.parametrize("answer", [Failure.NO_NODE, Failure.NO_AUTH, Failure.CONNECTION_LOSS])
def test_a_cluster_without_such_losses_has_nothing_to_do(answer: Failure) -> None:
    board = Board()
    board.losses.read_again(ME)
    board.answers(Children(LOST), answer)
    board.losses.tick(board.partitions)
    assert (board.asked, board.out) == ([], [])


def test_a_znode_that_says_nothing_is_told() -> None:
    board = Board()
    board.reads(Node(encode({"topic": "t"}), STAT))
    assert [str(fault).partition(":")[0] for fault in board.faults] == [f"znode {PATH}"]
    assert not board.out
    nameless = encode_lost(LOSS._replace(state=STATE._replace(in_sync=())))
    with pytest.raises(LayoutFault, match="does not name its broker"):
        decode_lost(PATH, Node(nameless, STAT))


def test_a_rebuilt_format_is_of_a_version_that_earlier_releases_refuse() -> None:
    found = Format("site", 1 << 44, rebuilding=True)
    data = encode_rebuilt_format(found, security=True)
    assert decode_format(Node(data, STAT)) == found
    assert b'"version":2' in data
    assert decode_format(Node(encode({"cluster_id": "site"}), STAT)) == Format("site")
    with pytest.raises(LayoutFault, match="has version 2, and this broker knows 1"):
        decode("/topics/t", data)
    with pytest.raises(LayoutFault, match="has version 3, and this broker knows 2"):
        decode(FORMAT, data.replace(b'"version":2', b'"version":3'))
