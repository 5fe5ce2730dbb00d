"""A board that has replicas, and does not know of which cluster, begins no cluster; it may join one that exists."""

from __future__ import annotations

import pytest

from edge_broker.cluster.effects import Ask, Contradicts
from edge_broker.cluster.member import ClusterMember
from edge_broker.cluster.partition.partition import Settings
from edge_broker.cluster.state.cluster_state import Identity
from edge_broker.cluster.znodes.znode_codec import FORMAT, broker_path, encode_format
from edge_broker.cluster.znodes.zookeeper import Answer, Connected, Create, Failure, Get, Node, Stat

MANY = ("a", "b", "c", "d", "e", "f")
STAT = Stat(0, 1, 1, 0)


class Starting:
    """A member whose session has just begun, and what it asks for."""

    def __init__(self, orphans: tuple[str, ...], cluster: str = "") -> None:
        identity = Identity(1, "one", (5,) if cluster else (), cluster)
        self.member = ClusterMember(identity, Settings(), new_cluster="new", orphans=orphans)
        self.asked: list[Ask] = []
        self.sentences: list[str] = []
        self.member.event_received(Connected(7, 6000), 1.0)
        self.take()

    def take(self) -> None:
        effects, self.member.effects = self.member.effects, []
        self.asked += [each for each in effects if isinstance(each, Ask)]
        self.sentences += [each.sentence for each in effects if isinstance(each, Contradicts)]

    def creates(self) -> list[str]:
        return [each.request.path for each in self.asked if isinstance(each.request, Create)]

    def has_format(self, answer: Answer) -> None:
        (token,) = [each.token for each in self.asked if each.request == Get(FORMAT)]
        self.member.answer_received(token, answer, 2.0)
        self.take()


def test_replicas_without_a_cluster_begin_none() -> None:
    board = Starting(MANY)
    assert FORMAT not in board.creates()
    board.has_format(Failure.NO_NODE)
    (sentence,) = board.sentences
    assert "has replicas (a, b, c, d, e, …)" in sentence
    assert "restore the ensemble's data" in sentence
    assert "`edge-broker cluster rebuild --help`" in sentence
    assert not board.creates()


def test_they_join_a_cluster_that_exists_as_any_other_disk() -> None:
    board = Starting(("a",))
    board.has_format(Node(encode_format("there"), STAT))
    assert not board.sentences
    assert broker_path(1) in board.creates()


def test_a_board_without_replicas_begins_the_cluster() -> None:
    assert Starting(()).creates() == [FORMAT]


@pytest.mark.parametrize("orphans", [(), ("a",)])
def test_a_board_that_knows_its_cluster_begins_none(orphans: tuple[str, ...]) -> None:
    board = Starting(orphans, cluster="mine")
    assert not board.creates()
    board.has_format(Failure.NO_NODE)
    (sentence,) = board.sentences
    assert "belongs to cluster mine" in sentence
    assert "`edge-broker cluster rebuild --help`" in sentence
