"""What a member counts of its cluster, in /metrics and /health: all is well, boards go, ZooKeeper is gone."""

from __future__ import annotations

import pytest

from edge_broker.broker.cluster.cluster_metrics import figures
from edge_broker.broker.health import cluster_problems, health_notes, health_problem
from edge_broker.cluster.member import MembershipState
from edge_broker.cluster.state.cluster_state import Objection, PartitionId
from edge_broker.network.background.metrics import metrics_text
from edge_broker.storage.metadata.loss_records import Loss
from edge_broker.testing.site import Site
from tests.support.in_cluster import InCluster
from tests.unit.broker.test_cluster_offsets import write
from tests.unit.broker.test_cluster_topics import NONE, create, new
from tests.unit.broker.test_metrics import figure

PLACES = [[1, 2, 3], [2, 3, 1], [1, 2, 3]]
NAMES = (
    "cluster_member",
    "partition_count",
    "leader_count",
    "under_replicated_partitions",
    "under_min_isr_partition_count",
    "offline_partitions_count",
    "active_controller_count",
)


@pytest.fixture
def three() -> InCluster:
    cluster = InCluster(3)
    assert create(cluster, 1, new("t", assigned=PLACES, config={"min.insync.replicas": "2"})) == [NONE]
    cluster.settle()
    return cluster


def text(cluster: InCluster, board: int) -> str:
    site = cluster.boards[board].site
    return metrics_text(site.broker, site.dispatcher, site.server, 0)


def shown(cluster: InCluster, board: int) -> dict[str, float]:
    return {name: figure(text(cluster, board), name) for name in NAMES}


def notes(cluster: InCluster, board: int) -> list[str]:
    return list(health_notes(cluster.boards[board].broker))


def lagging(cluster: InCluster, board: int) -> dict[tuple[str, int], int]:
    found = figures(cluster.boards[board].facade.view, cluster.boards[board].site.store.ledger_log).lags
    return {(f"{lag.partition.topic}-{lag.partition.partition}", lag.broker): lag.records for lag in found}


def test_all_is_well(three: InCluster) -> None:
    assert write(three, 1, b"a", b"b") == NONE
    three.settle()
    leads = {1: 3.0, 2: 1.0, 3: 0.0}  # the ledger is led by 1
    for board in three.boards:
        found = shown(three, board)
        assert found.pop("leader_count") == leads[board]
        controls = found.pop("active_controller_count")
        assert controls == (three.boards[board].facade.view.controller == board)
        assert found.pop("partition_count") == (4.0 if board == 1 else 3.0)
        assert list(found.values()) == [1.0, 0.0, 0.0, 0.0]
        assert notes(three, board) == []
        assert health_problem(three.boards[board].broker) is None
    assert lagging(three, 1) == {("t-0", 2): 0, ("t-0", 3): 0, ("t-2", 2): 0, ("t-2", 3): 0}
    assert lagging(three, 3) == {}
    line = 'edge_broker_follower_lag_seconds{topic="t",partition="0",broker="2"} 0.0'
    assert line in text(three, 1).splitlines()


def test_one_board_goes_and_then_a_second(three: InCluster) -> None:
    three.boards[3].stop()
    three.pass_until(lambda: 3 not in three.boards[1].facade.view.broker_ids)
    assert write(three, 1, b"a", b"b") == NONE
    three.settle()
    assert shown(three, 1)["under_replicated_partitions"] == 2
    assert shown(three, 1)["under_min_isr_partition_count"] == 0
    assert lagging(three, 1)["t-0", 3] == 2
    assert [
        lag.seconds > 0
        for lag in figures(three.boards[1].facade.view, three.boards[1].site.store.ledger_log).lags
        if lag.broker == 3 and lag.records
    ] == [True]
    assert notes(three, 1) == ["2 partitions that are led here lack replicas, first t-0: 2 of 3 are in sync"]
    three.boards[2].stop()
    three.pass_until(lambda: three.boards[1].facade.view.broker_ids == {1})
    three.pass_until(lambda: three.boards[1].facade.view.controller == 1)
    three.settle()
    found = shown(three, 1)
    assert (found["leader_count"], found["under_min_isr_partition_count"]) == (4, 3)
    assert found["offline_partitions_count"] == 0
    assert notes(three, 1)[0].endswith("first t-0: 1 of 3 are in sync, and acks=all needs 2")


def test_what_nobody_leads_is_told_by_the_controller() -> None:
    cluster = InCluster(2)
    assert create(cluster, 1, new("t", assigned=[[2], [2], [1]])) == [NONE]
    cluster.settle()
    cluster.boards[2].stop()
    cluster.pass_until(lambda: set(cluster.boards[1].facade.view.broker_ids) == {1})
    cluster.pass_until(lambda: cluster.boards[1].facade.view.controller == 1)
    cluster.settle()
    assert shown(cluster, 1)["offline_partitions_count"] == 2
    assert shown(cluster, 1)["under_replicated_partitions"] == 0


def test_why_a_broker_serves_nothing(three: InCluster) -> None:
    board = three.boards[1]
    member = board.member

    def problem() -> str:
        return health_problem(board.broker) or ""

    member.connected = False
    assert problem() == "", "a lease holds for a while"
    assert board.facade.view.controller > 0
    member.now_ms += 60_000
    assert board.facade.view.controller == -1, "another may have the office by now"
    assert problem().startswith("ZooKeeper does not answer")
    member.standing = MembershipState.APART
    assert problem().startswith("not a member of the cluster: there is no session with ZooKeeper")
    member.connected = True
    said = set()
    for standing in MembershipState:
        member.standing = standing
        said.add(problem())
    assert len(said) == len(MembershipState), "each standing has its own words"
    board.facade.view.contradiction = "another broker has broker.id 1 and is alive"
    assert problem() == "not a member of the cluster: another broker has broker.id 1 and is alive"
    assert figure(text(three, 1), "cluster_member") == 0


def test_a_broker_that_stands_alone_tells_nothing_of_it() -> None:
    site = Site()
    shown_alone = metrics_text(site.broker, site.dispatcher, site.server, 0)
    for name in (*NAMES, "follower_lag_records"):
        assert f"edge_broker_{name} " not in shown_alone
        assert f"# HELP edge_broker_{name}" not in shown_alone


def test_losses_that_wait_are_counted_and_told(three: InCluster) -> None:
    board = three.boards[2]
    three.boards[1].stop()
    losses = [Loss("evicted", "t", "id" * 11, 0, offset, offset + 1, 1, 70) for offset in range(3)]
    board.work(lambda: board.site.store.ledger.write(losses))
    three.pass_until(lambda: three.boards[2].facade.view.broker_ids == {2, 3})
    assert figure(text(three, 2), "ledger_journal_entries") == 3
    assert figure(text(three, 2), "ledger_journal_bytes") > 0
    assert notes(three, 2)[1:] == ["3 losses wait in this board's journal for __edge_ledger: nobody leads it"]


def test_a_full_journal_is_a_problem(three: InCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge_broker.storage.loss.ledger_journal.JOURNAL_BYTES_MAX", 0)
    assert "the ledger's journal is full" in (health_problem(three.boards[1].broker) or "")


def test_partitions_that_a_board_objects_to_are_named_on_each_of_their_boards(three: InCluster) -> None:
    for board in three.boards.values():
        found = board.member.partitions[PartitionId("t", 0)]
        assert found.state is not None
        found.state = found.state._replace(objections=(Objection(2, "newer"),))
        problem = health_problem(board.broker)
        assert problem is not None
        assert problem.startswith("1 partition with a replica here is not served, first t-0: broker 2 acted by newer")
        assert problem in [each.text for each in cluster_problems(board.broker)], "cluster status names it"
    found = three.boards[1].member.partitions[PartitionId("t", 2)]
    assert found.state is not None
    found.state = found.state._replace(objections=(Objection(3, "newer"), Objection(1, "newer")))
    problem = health_problem(three.boards[1].broker) or ""
    assert problem.startswith("2 partitions with a replica here are not served, first t-0: brokers 1, 2, 3 acted")
