"""One ledger of a real cluster: what any board loses is read from any board, once, whoever died in between."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from drupelet.ledger import LEDGER_TOPIC
from tests.support.board_cluster import BoardCluster
from tests.support.runtimes import console_script
from tests.support.waiting import CALL_S, wait_until
from tests.support.zookeeper import ZooKeeperEnsemble

WAIT_S = 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BoardCluster]:
    directory = tmp_path_factory.mktemp("boards")
    with ZooKeeperEnsemble(directory) as ensemble, BoardCluster(directory, ensemble) as cluster:
        cluster.wait_in_sync(LEDGER_TOPIC)
        yield cluster


def lose(cluster: BoardCluster, topic: str, count: int, end: int) -> None:
    """Delete records that a named group has not read: a loss, on the board that leads."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(count):
        producer.produce(topic, str(number).encode())
    assert producer.flush(WAIT_S) == 0
    place = TopicPartition(topic, 0, end)
    assert cluster.admin.delete_records([place])[place].result(CALL_S).low_watermark == end


def entries(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    """What the ledger says of a topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ledger", "enable.auto.commit": False})
    try:
        where = TopicPartition(LEDGER_TOPIC, 0, 0)
        end = consumer.get_watermark_offsets(where, timeout=CALL_S)[1]
        consumer.assign([where])
        found, position = [], 0
        while position < end:
            message = consumer.poll(CALL_S)
            assert message is not None
            assert message.error() is None, message.error()
            found.append(json.loads(message.value() or b""))
            position = (message.offset() or 0) + 1
        return [one for one in found if one["topic"] == topic]
    finally:
        consumer.close()


def is_led(cluster: BoardCluster, topic: str) -> bool:
    """Whether a board leads that runs."""
    leader = cluster.partitions(topic)[0].leader
    return leader > 0 and cluster.board(leader).running


def test_a_loss_of_any_board_is_read_from_every_board_and_the_tool_proves_it(cluster: BoardCluster) -> None:
    topic = cluster.make_topic(f"t-{uuid.uuid4().hex[:8]}", edge_required_groups="g")
    other = next(number for number in (1, 2, 3) if cluster.board(number) is not cluster.leader(LEDGER_TOPIC))
    lose(cluster, topic, 10, 4)
    wait_until(lambda: entries(cluster.bootstrap, topic), WAIT_S, "the loss is in the ledger")
    (found,) = entries(cluster.board(other).bootstrap, topic)
    assert (found["cause"], found["first_offset"], found["last_offset"]) == ("deleted_by_request", 0, 3)
    leader = cluster.partitions(topic)[0].leader
    assert found["node"] == str(leader)
    command = [console_script("edge-broker"), "ledger", "--data-dir", cluster.board(leader).data_dir, "--topic", topic]

    def proved() -> bool:
        ran = subprocess.run([*command, "--prove"], capture_output=True, text=True, timeout=CALL_S, check=False)
        return ran.returncode == 0

    wait_until(proved, WAIT_S, "the board's own replica has the entry")
    listed = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=CALL_S, check=True).stdout
    assert [json.loads(line)["id"] for line in listed.splitlines()] == [found["id"]]


def test_the_leader_of_the_ledger_dies_and_what_is_lost_meanwhile_is_there_once(cluster: BoardCluster) -> None:
    topic = cluster.make_topic(f"t-{uuid.uuid4().hex[:8]}", edge_required_groups="g")
    lose(cluster, topic, 5, 5)
    leader = cluster.leader(LEDGER_TOPIC)
    leader.kill()
    wait_until(lambda: is_led(cluster, topic), WAIT_S, "somebody who is there leads the topic")
    lose(cluster, topic, 5, 10)
    leader.start()
    cluster.wait_in_sync(LEDGER_TOPIC)

    def both() -> bool:
        return {one["last_offset"] for one in entries(cluster.bootstrap, topic)} >= {4, 9}

    wait_until(both, WAIT_S, "both losses are in the ledger")
    found = entries(cluster.bootstrap, topic)
    assert sorted(one["last_offset"] for one in found) == [4, 9], "each once; the second may have had the first, too"
