"""An older copy of ZooKeeper's data knows fewer partitions and topics than the disks: they stay, and are named."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from edge_broker.broker.health import health_problem
from edge_broker.broker.operations.unserved import UnservedPartition, find_unserved, unserved_problem
from edge_broker.cluster.state.cluster_state import PartitionId, Topic
from edge_broker.cluster.znodes.znode_codec import (
    decode_topic,
    deleted_path,
    encode,
    encode_topic,
    state_path,
    topic_id_path,
    topic_path,
)
from edge_broker.cluster.znodes.zookeeper import Node
from edge_broker.errors import ErrorCode
from edge_broker.network.cluster.member_runtime import ClusterShell
from edge_broker.protocol.api import CREATE_PARTITIONS, DESCRIBE_LOG_DIRS, PRODUCE
from edge_broker.protocol.messages.create_partitions import CreatePartitionsRequest
from edge_broker.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from edge_broker.testing.zookeeper import NodeDeleted, Put, Step
from tests.support.in_cluster import InCluster
from tests.support.storage import batch
from tests.unit.broker.test_cluster_topics import NONE, NOT_THERE, create, log_dirs, new, topic
from tests.unit.broker.test_create_partitions import more
from tests.unit.broker.test_produce import code, produce

PLACES = [[1, 2, 3], [1, 2, 3], [1, 2, 3]]
LAST = PartitionId("t", 2)


class Site:
    """Three boards, and a topic of three partitions, all of them with records."""

    def __init__(self) -> None:
        self.cluster = InCluster(3)
        assert create(self.cluster, 1, new("t", assigned=PLACES)) == [NONE]
        self.cluster.settle()
        for number in range(3):
            assert self.write(number) == NONE
        self.cluster.settle()

    def write(self, number: int) -> int:
        return code(self.cluster.ask(1, PRODUCE, produce(("t", number, batch(b"a")), acks=-1)))

    def change(self, replicas: Iterable[tuple[int, ...]]) -> list[Step]:
        """What makes the topic one with these replicas; how to undo it."""
        nodes = self.cluster.ensemble.tree.nodes
        node = nodes[topic_path("t")]
        old = decode_topic("t", Node(node.data, node.stat))
        made = old._replace(replicas=tuple(replicas))
        kept: list[Step] = [Put(topic_path("t"), node.data, node.stat)]
        steps: list[Step] = [Put(topic_path("t"), encode_topic(made), node.stat)]
        for number in range(len(made.replicas), len(old.replicas)):
            path = state_path(PartitionId("t", number))
            kept.append(Put(path, nodes[path].data, nodes[path].stat))
            steps.append(NodeDeleted(path))
        self.commit(steps)
        return kept

    def forget(self) -> list[Step]:
        """Let the ensemble know nothing of the topic; how to undo it."""
        nodes = self.cluster.ensemble.tree.nodes
        topic_id = decode_topic("t", Node(nodes[topic_path("t")].data, nodes[topic_path("t")].stat)).topic_id
        places = [topic_path("t"), *(state_path(PartitionId("t", number)) for number in range(3))]
        kept: list[Step] = [Put(path, nodes[path].data, nodes[path].stat) for path in places if path in nodes]
        kept += [Put(path, nodes[path].data, nodes[path].stat) for path in [topic_id_path("t", topic_id)]]
        self.commit([NodeDeleted(each.path) for each in reversed(kept)])
        return kept

    def commit(self, steps: Iterable[Step]) -> None:
        self.cluster.ensemble.commit(tuple(steps))
        self.cluster.settle()

    def named(self, board: int) -> list[PartitionId]:
        one = self.cluster.boards[board]
        return [each.partition for each in find_unserved(one.facade.view, one.site.store)]

    def health(self, board: int) -> str | None:
        return health_problem(self.cluster.boards[board].broker)

    def restart(self) -> None:
        for number in (1, 2, 3):
            self.cluster.restart(number)
            self.cluster.settle()


@pytest.fixture
def site() -> Site:
    return Site()


def test_a_partition_that_the_topic_has_no_more_stops_stays_and_is_served_once_it_has_it_again(site: Site) -> None:
    kept = site.change([(1, 2, 3)] * 2)
    for board in (1, 2, 3):
        assert [each.partition for each in site.cluster.boards[board].member.partitions if each.topic == "t"] == [0, 1]
        assert site.named(board) == [LAST]
        problem = site.health(board) or ""
        assert problem.startswith("1 partition with records on this disk is not served: t-2: ZooKeeper's topic t has 2")
        assert "put a newer copy of the ensemble's data back" in problem
        assert log_dirs(site.cluster, board)["t"][2] > 0
        told = site.cluster.ask(board, DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=[]), 4).problems
        assert [(each.kind, each.text) for each in told] == [("unserved", problem)], "`cluster status` names it, too"
    assert len(topic(site.cluster, 1).partitions) == 2
    assert (site.write(0), site.write(2)) == (NONE, NOT_THERE)
    site.commit(kept)
    assert [site.named(board) for board in (1, 2, 3)] == [[], [], []]
    assert [site.health(board) for board in (1, 2, 3)] == [None] * 3
    assert site.write(2) == NONE
    assert site.cluster.boards[1].log(LAST).log_end_offset == 2, "what it had is still there"


def test_so_it_is_where_the_boards_start_with_the_older_copy(site: Site) -> None:
    kept = site.change([(1, 2, 3)])
    site.restart()
    for board in (1, 2, 3):
        assert site.named(board) == [PartitionId("t", 1), LAST]
        assert "2 partitions with records on this disk are not served: t-1, t-2: ZooKeeper" in (
            site.health(board) or ""
        )
    site.commit(kept)
    assert [site.named(board) for board in (1, 2, 3)] == [[], [], []]
    assert (site.write(1), site.write(2)) == (NONE, NONE)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_topic_that_the_ensemble_does_not_know_is_named_until_it_does(site: Site, restarted: bool) -> None:
    kept = site.forget()
    if restarted:
        site.restart()
    for board in (1, 2, 3):
        assert site.named(board) == [PartitionId("t", number) for number in range(3)]
        assert "ZooKeeper has no topic t" in (site.health(board) or "")
    site.commit(kept)
    assert [site.named(board) for board in (1, 2, 3)] == [[], [], []]
    assert site.write(2) == NONE


def test_a_topic_whose_deletion_the_newer_copy_knows_goes_then(site: Site) -> None:
    (tree,) = [site.cluster.ensemble.tree]
    node = tree.nodes[topic_path("t")]
    topic_id = decode_topic("t", Node(node.data, node.stat)).topic_id
    site.forget()
    assert len(site.named(3)) == 3
    site.commit([Put(deleted_path(topic_id), encode({"topic": "t"}), node.stat)])
    for board in site.cluster.boards.values():
        board.session.connection_lost()
    site.cluster.settle()
    assert [site.named(board) for board in (1, 2, 3)] == [[], [], []]
    assert not ["t" for board in site.cluster.boards.values() if "t" in board.site.store.topics]


def test_a_replica_that_the_topic_gives_to_others_stops_and_is_named(site: Site) -> None:
    """As where the ensemble's copy is of a time at which this board did not have the partition."""
    kept = site.change([(1, 2, 3), (1, 2, 3), (2, 3)])
    assert LAST not in site.cluster.boards[1].member.partitions
    assert site.named(1) == [LAST]
    assert "ZooKeeper's topic t has it on brokers 2, 3, and not on this one" in (site.health(1) or "")
    assert [site.named(board) for board in (2, 3)] == [[], []]
    assert site.cluster.boards[2].member.partitions[LAST].replicas == (2, 3)
    assert log_dirs(site.cluster, 1)["t"][2] > 0, "it is told with what lies on the disk"
    site.commit(kept)
    assert (site.named(1), site.health(1)) == ([], None)


def test_no_partition_is_made_in_the_place_of_one_that_the_disk_has(site: Site) -> None:
    """Its leader would begin with epoch 0, and its followers would truncate what is newer."""
    kept = site.change([(1, 2, 3)] * 2)
    asked = CreatePartitionsRequest(topics=[more("t", 3)], timeout_ms=1000)
    (result,) = site.cluster.ask(2, CREATE_PARTITIONS, asked).results
    assert result.error_code == ErrorCode.INVALID_PARTITIONS
    assert "t-2 has records on this broker's disk, and ZooKeeper does not know it" in result.error_message
    site.commit(kept)
    asked.topics = [more("t", 4)]
    assert site.cluster.ask(2, CREATE_PARTITIONS, asked).results[0].error_code == NONE


def test_each_is_logged_once_and_again_when_it_is_served(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    board = site.cluster.boards[1]
    shell: Any = ClusterShell.__new__(ClusterShell)
    shell.member, shell.cluster, shell._broker = board.member, board.facade, board.broker
    shell._image_seen, shell._unserved = None, set()
    shell._log_unserved()
    assert capsys.readouterr().err == ""
    kept = site.change([(1, 2, 3)] * 2)
    for _ in range(2):
        shell._log_unserved()
    (line,) = capsys.readouterr().err.splitlines()
    assert "partition_not_served topic=t partition=2 reason=" in line
    site.commit(kept)
    for _ in range(2):
        shell._log_unserved()
    (line,) = capsys.readouterr().err.splitlines()
    assert "partition_served_again topic=t partition=2" in line


def test_a_place_without_records_is_not_named(site: Site) -> None:
    cluster = site.cluster
    assert create(cluster, 1, new("empty", assigned=PLACES), new("elsewhere", assigned=[[2, 3]])) == [NONE, NONE]
    cluster.settle()
    node = cluster.ensemble.tree.nodes[topic_path("empty")]
    made = decode_topic("empty", Node(node.data, node.stat))
    less = Topic(made.topic_id, made.replicas[:1], made.config)
    cluster.ensemble.commit((Put(topic_path("empty"), encode_topic(less), node.stat),))
    cluster.settle()
    assert (site.named(1), site.health(1)) == ([], None)


def test_nothing_is_named_while_what_there_is_is_not_known(site: Site) -> None:
    """A broker that has not read the image knows of no topic at all."""
    site.change([(1, 2, 3)] * 2)
    board = site.cluster.boards[1]
    board.session.close()
    board.member.image.end()
    assert site.named(1) == []


def test_many_are_counted_and_ten_are_named() -> None:
    found = [UnservedPartition(PartitionId("t", number), f"reason {number % 2}") for number in range(12)]
    text = unserved_problem(found) or ""
    assert text.startswith("12 partitions with records on this disk are not served: t-0, t-1, t-2, ")
    assert "t-9 and 2 more: reason 0, reason 1; nothing of it is deleted" in text
    assert unserved_problem([]) is None


def test_cluster_status_is_told_what_health_says(site: Site) -> None:
    site.change([(1, 2, 3)] * 2)
    answer = site.cluster.ask(3, DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=None))
    (problem,) = answer.problems
    assert (problem.kind, problem.text) == ("unserved", site.health(3))
