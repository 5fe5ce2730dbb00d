"""Disks of a cluster: an empty one in place of another, one of a board that stood alone, one of another cluster."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kazoo.client import KazooClient

from edge_broker.app import CANNOT_BE_MEMBER
from tests.conformance.test_cluster import Written, assert_each_once
from tests.support.board_cluster import BoardCluster
from tests.support.kafka_reading import read_topic
from tests.support.processes import EdgeBroker
from tests.support.waiting import CALL_S
from tests.support.zookeeper import ZooKeeperEnsemble


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BoardCluster]:
    directory = tmp_path_factory.mktemp("cards")
    with ZooKeeperEnsemble(directory) as ensemble, BoardCluster(directory, ensemble) as cluster:
        yield cluster


def test_an_empty_disk_fetches_everything(cluster: BoardCluster) -> None:
    topic = cluster.make_topic("emptied", 3)
    written = Written(cluster, topic)
    written.write(300, "before")
    answered = dict(written.end())
    board = cluster.board(1)
    board.kill()
    shutil.rmtree(board.data_dir)
    board.start()
    cluster.wait_in_sync(topic)
    others = cluster.boards[1:]
    for other in others:  # so that the new disk leads, and is read
        other.stop()
        other.start()
        cluster.wait_in_sync(topic)
    assert_each_once(cluster, topic, answered)


def test_what_a_board_had_alone_is_made_no_member_of(cluster: BoardCluster, tmp_path: Path) -> None:
    data_dir = tmp_path / "alone"

    def alone() -> EdgeBroker:
        return EdgeBroker(tmp_path, name="alone", data_dir=data_dir, settings={"broker.id": 4})

    with alone() as board:
        producer = Producer({"bootstrap.servers": board.bootstrap, "acks": "all"})
        producer.produce("mine", b"kept")
        assert producer.flush(CALL_S) == 0
    settings = {"broker.id": 4, "zookeeper.connect": cluster.ensemble.connect}
    joined = EdgeBroker(tmp_path, name="joined", data_dir=data_dir, settings=settings)
    joined.spawn()
    assert joined.wait(CALL_S) == 1
    said = joined.log_path.read_text()
    assert "has its topics here (mine), and no cluster would serve them" in said
    assert "Traceback" not in said
    with alone() as board:
        assert [record.value for record in read_topic(board.bootstrap, "mine")] == [b"kept"]


def make_znode(cluster: BoardCluster, path: str) -> None:
    client = KazooClient(cluster.ensemble.connect)
    client.start(CALL_S)
    try:
        client.create(path)
    finally:
        client.stop()
        client.close()


def test_a_board_ends_where_its_cluster_is_not_known(cluster: BoardCluster, tmp_path: Path) -> None:
    """As where the ensemble has lost its data, or zookeeper.connect names another one."""
    make_znode(cluster, "/elsewhere")
    data_dir = tmp_path / "data"
    connect = cluster.ensemble.connect
    with EdgeBroker(tmp_path, data_dir=data_dir, settings={"broker.id": 5, "zookeeper.connect": connect}):
        pass
    lost = {"broker.id": 5, "zookeeper.connect": f"{connect}/elsewhere"}
    board = EdgeBroker(tmp_path, name="lost", data_dir=data_dir, settings=lost)
    board.spawn()
    assert board.wait(CALL_S) == CANNOT_BE_MEMBER
    said = board.log_path.read_text()
    assert "knows no cluster, and this data directory belongs to cluster" in said
    assert "nothing here was touched" in said


def test_a_board_with_replicas_begins_no_cluster_on_an_emptied_ensemble(cluster: BoardCluster, tmp_path: Path) -> None:
    """Not even without the file that says to which cluster it belongs; it goes back as another disk."""
    topic = cluster.make_topic("orphaned", 3)
    written = Written(cluster, topic)
    written.write(50, "before")
    answered = dict(written.end())
    board = cluster.board(3)
    board.stop()
    (board.data_dir / "registrations").unlink()
    make_znode(cluster, "/emptied")
    settings = {"broker.id": 3, "zookeeper.connect": f"{cluster.ensemble.connect}/emptied"}
    emptied = EdgeBroker(tmp_path, name="emptied", data_dir=board.data_dir, settings=settings)
    emptied.spawn()
    assert emptied.wait(CALL_S) == CANNOT_BE_MEMBER
    said = emptied.log_path.read_text()
    assert "orphaned" in said.partition("has replicas (")[2]
    assert "restore the ensemble's data" in said
    client = KazooClient(f"{cluster.ensemble.connect}/emptied")
    client.start(CALL_S)
    assert client.get_children("/") == [], "nothing was begun"
    client.stop()
    client.close()
    board.start()
    cluster.wait_in_sync(topic)
    assert_each_once(cluster, topic, answered)
