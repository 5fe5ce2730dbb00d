"""One board of a cluster has a card that is far too small: its topics go on, and nothing that was acked is lost.

Does not contain: a board that stands alone (test_disk_full.py), cards that fail (test_cluster_cards.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.cimpl import NewTopic

from drupelet.ledger import LEDGER_TOPIC
from tests.fault.full_disk import MIB, small_device
from tests.support.board_cluster import BoardCluster
from tests.support.kafka_reading import made_by, read_topic
from tests.support.waiting import CALL_S, wait_until
from tests.support.zookeeper import ZooKeeperEnsemble, ZooKeeperServer

pytestmark = pytest.mark.root("mount")
SMALL, CARD_BYTES, WRITTEN_BYTES, VALUE_BYTES = 3, 48 * MIB, 60 * MIB, 8192
LITTLE_BYTES = 52 * MIB  # more than a small card takes
WRITE_S = 60.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BoardCluster]:
    with (
        small_device(tmp_path, "tmpfs", CARD_BYTES) as card,
        ZooKeeperEnsemble(tmp_path) as ensemble,
        BoardCluster(tmp_path, ensemble, data_dirs={SMALL: card / "data"}) as cluster,
    ):
        cluster.board(SMALL).stop_statuses = (0, 1)  # it says what it could not write, where no byte is left
        yield cluster


def write(cluster: BoardCluster, topic: str, count: int) -> tuple[set[bytes], list[KafkaError]]:
    """Produce with acks=all; return the keys that were acked, and the failures."""
    acked: set[bytes] = set()
    failures: list[KafkaError] = []

    def answered(error: KafkaError | None, message: Message) -> None:
        key = message.key()
        assert isinstance(key, bytes)
        failures.append(error) if error is not None else acked.add(key)

    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "message.timeout.ms": WRITE_S * 1000})
    for number in range(count):
        producer.produce(topic, os.urandom(VALUE_BYTES), str(number).encode(), on_delivery=answered)
        producer.poll(0)
        if number % 100 == 0:
            producer.flush(WRITE_S)
    producer.flush(WRITE_S)
    return acked, failures


def test_a_small_card_costs_no_acked_record_and_refuses_none(cluster: BoardCluster) -> None:
    topic = cluster.make_topic("readings", 3, **{"min.insync.replicas": "2"})
    cluster.wait_in_sync(topic)
    assert SMALL in {found.leader for found in cluster.partitions(topic).values()}
    acked, failures = write(cluster, topic, WRITTEN_BYTES // VALUE_BYTES)
    read = {record.key for record in read_topic(cluster.bootstrap, topic)}
    lost = acked - read
    assert (len(failures), len(lost)) == (0, 0), f"{len(acked)} acked, {len(read)} readable, {failures[:1]}"

    def small_board_steps_back() -> bool:
        found = cluster.partitions(topic).values()
        return all(each.leader != SMALL and SMALL not in each.isrs for each in found)

    wait_until(small_board_steps_back, CALL_S, "the small board leads nothing, and is in no in-sync set")
    assert health(cluster, SMALL).startswith("503 the disk is")
    assert health(cluster, 1).startswith("ok, but")
    status, text = cluster_status(cluster)
    assert status == 1
    assert f"the disk of broker {SMALL} is full for " in text.splitlines()[-1]
    assert f"broker {SMALL}: the disk is" in text
    dead = server_of(cluster, 1)
    dead.kill()
    silent = f"ZooKeeper server {dead.bootstrap} does not answer: connection refused"
    status, text = cluster_status(cluster)
    assert (status, silent in text.splitlines()[-1]) == (1, True), text
    wait_until(lambda: silent in health(cluster, 1), CALL_S, "the board that was connected to it names it, too")


def server_of(cluster: BoardCluster, number: int) -> ZooKeeperServer:
    """Return the server of the ensemble that a board is connected to."""
    connections = psutil.Process(cluster.board(number).pid).net_connections("tcp")
    ports = {each.raddr.port for each in connections if each.raddr}
    return next(server for server in cluster.ensemble.servers if server.port in ports)


def cluster_status(cluster: BoardCluster) -> tuple[int, str]:
    """Return what `edge-broker cluster status` ends with, and prints."""
    place = cluster.bootstrap.partition(",")[0]
    command = [sys.executable, "-m", "edge_broker", "cluster", "status", "--bootstrap-server", place]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=CALL_S, check=False)
    assert not ran.stderr, ran.stderr
    return ran.returncode, ran.stdout


def health(cluster: BoardCluster, number: int) -> str:
    """Return what a board says on /health, be it well or not."""
    url = cluster.board(number).metrics_url.replace("/metrics", "/health")
    try:
        with urllib.request.urlopen(url, timeout=CALL_S) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read().decode()}"


@pytest.fixture
def two_small(tmp_path: Path) -> Iterator[BoardCluster]:
    """Boards 2 and 3 have small cards; the leader has room, and needs one of them."""
    for name in ("two", "three"):
        (tmp_path / name).mkdir()
    with (
        small_device(tmp_path / "two", "tmpfs", CARD_BYTES) as two,
        small_device(tmp_path / "three", "tmpfs", CARD_BYTES) as three,
        ZooKeeperEnsemble(tmp_path) as ensemble,
        BoardCluster(tmp_path, ensemble, data_dirs={2: two / "data", 3: three / "data"}) as cluster,
    ):
        for number in (2, 3):
            cluster.board(number).stop_statuses = (0, 1)  # as above
        yield cluster


def test_two_small_cards_beside_a_large_leader_refuse_no_record_for_good(two_small: BoardCluster) -> None:
    """The leader evicts for them, in small steps; each loss is in the ledger."""
    cluster, topic, count = two_small, "readings", LITTLE_BYTES // VALUE_BYTES
    made_by(cluster.bootstrap, NewTopic(topic, 1, replica_assignment=[[1, 2, 3]], config={"min.insync.replicas": "2"}))
    cluster.wait_in_sync(topic)
    acked, failures = write(cluster, topic, count)
    assert (len(failures), len(acked)) == (0, count)
    assert cluster.partitions(topic)[0].leader == 1
    lost = len(acked - {record.key for record in read_topic(cluster.bootstrap, topic)})
    assert 0 < lost * VALUE_BYTES < CARD_BYTES // 2, "in small steps: most of what fits stays"
    wait_until(lambda: evicted(cluster, topic) == lost, CALL_S, "each lost record is in the ledger")


def evicted(cluster: BoardCluster, topic: str) -> int:
    """Return how many records of a topic were evicted by what the ledger says."""
    entries = [json.loads(record.value or b"{}") for record in read_topic(cluster.bootstrap, LEDGER_TOPIC)]
    return sum(each["records"] for each in entries if (each.get("topic"), each.get("cause")) == (topic, "evicted"))
