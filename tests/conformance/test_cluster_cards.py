"""Disks of a cluster: an empty one in place of another, one of a board that stood alone, one of another cluster."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kazoo.client import KazooClient

from edge_broker.app import CANNOT_BE_MEMBER
from edge_broker.cluster.znodes.znode_codec import decode_topic, encode_topic, topic_path
from edge_broker.cluster.znodes.zookeeper import Node, Stat
from tests.support.board_cluster import BoardCluster
from tests.support.conformance.cluster_records import AckedWrites, assert_each_once
from tests.support.kafka_reading import read_topic
from tests.support.processes import EdgeBroker
from tests.support.waiting import CALL_S, wait_until
from tests.support.zookeeper import ZooKeeperEnsemble


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BoardCluster]:
    directory = tmp_path_factory.mktemp("cards")
    with ZooKeeperEnsemble(directory) as ensemble, BoardCluster(directory, ensemble) as cluster:
        yield cluster


def test_an_empty_disk_fetches_everything(cluster: BoardCluster) -> None:
    topic = cluster.make_topic("emptied", 3)
    written = AckedWrites(cluster, topic)
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
    written = AckedWrites(cluster, topic)
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


def cluster_status(cluster: BoardCluster) -> tuple[int, str]:
    """What `edge-broker cluster status` ends with, and prints."""
    place = cluster.bootstrap.partition(",")[0]
    words = [sys.executable, "-m", "edge_broker", "cluster", "status", "--bootstrap-server", place]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=CALL_S)
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


@pytest.mark.night  # one of two proofs: tests/unit/broker/test_unserved.py has the same over the model of ZooKeeper
@pytest.mark.timeout(180)
def test_partitions_that_an_older_znode_lacks_are_named_and_served_again_with_the_newer_one(
    cluster: BoardCluster,
) -> None:
    topic = cluster.make_topic("older", 3)
    written = AckedWrites(cluster, topic)
    written.write(200, "before")
    answered = dict(written.end())
    client = KazooClient(cluster.ensemble.connect)
    client.start(CALL_S)
    try:
        path = topic_path(topic)
        newer, _ = client.get(path)
        state, _ = client.get(f"{path}/2")
        known = decode_topic(topic, Node(newer, Stat(0, 1, 1, 0)))
        client.set(path, encode_topic(known._replace(replicas=known.replicas[:2])))
        client.delete(f"{path}/2")
        named = f"with records on this disk is not served: {topic}-2: ZooKeeper's topic {topic} has 2 partitions"
        wait_until(lambda: cluster_status(cluster)[1].count(named) >= 3, CALL_S, "all boards name it")
        assert cluster_status(cluster)[0] == 1
        for board in cluster.boards:
            text = board.log_path.read_text()
            assert text.count(f"partition_not_served topic={topic} partition=2") == 1
            assert "IndexError" not in text
        client.create(f"{path}/2", state)
        client.set(path, newer)
    finally:
        client.stop()
        client.close()
    wait_until(lambda: cluster_status(cluster)[0] == 0, CALL_S, "it is served again")
    assert_each_once(cluster, topic, answered)
