"""A mirror goes on by itself after a target of three brokers was short of in-sync replicas.

Does not contain: schedules of failures (tests/simulation/mirror_runs.py).
"""

from __future__ import annotations

import os
from contextlib import contextmanager

from confluent_kafka import Producer

from tests.support.board_cluster import BoardCluster
from tests.support.mirror_road import EdgeMirror, bounds, create_topic
from tests.support.processes import EdgeBroker, wait_until
from tests.support.waiting import CALL_S
from tests.support.zookeeper import ZooKeeperEnsemble

PARTITIONS = 16
LARGE_BYTES = 900_000
ON_AGAIN_S = 45.0


@contextmanager
def edge(directory):
    with ZooKeeperEnsemble(directory / "zookeeper") as ensemble, BoardCluster(directory, ensemble) as cluster:
        yield cluster


def write(bootstrap, topic, partitions, count, size):
    """Produce `count` records of so many bytes to each partition; noise, so that packing takes none of it away."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "message.max.bytes": 100 << 20})
    for partition in range(partitions):
        for number in range(count):
            producer.produce(topic, os.urandom(size), key=b"%d" % number, partition=partition)
            producer.flush(CALL_S)


def delivered(bootstrap):
    """The offsets of all partitions at the target."""
    return sum(bounds(bootstrap, "lab.readings", number)[1] for number in range(PARTITIONS))


def test_a_target_that_was_short_of_replicas_takes_large_records_once_it_is_not(tmp_path):
    with edge(tmp_path / "target") as cluster, EdgeBroker(tmp_path, name="source") as source:
        create_topic(source.bootstrap, "readings", PARTITIONS)
        create_topic(source.bootstrap, "others", 1)
        cluster.make_topic("lab.readings", PARTITIONS, min_insync_replicas="3")
        with EdgeMirror(tmp_path, source.bootstrap, cluster.bootstrap, topics="readings|others", site="lab") as mirror:
            write(source.bootstrap, "others", 1, 1, 100)
            wait_until(lambda: bounds(cluster.bootstrap, "lab.others")[1] == 1, ON_AGAIN_S, "the first record")
            board = cluster.board(3)
            board.kill()
            write(source.bootstrap, "readings", PARTITIONS, 2, LARGE_BYTES)
            write(source.bootstrap, "others", 1, 20, 100)
            wait_until(lambda: mirror.get("/health")[0] != 200, ON_AGAIN_S, "refusals", poll_s=0.5)
            board.start()
            cluster.wait_in_sync("lab.readings")
            wait_until(lambda: delivered(cluster.bootstrap) == 2 * PARTITIONS, ON_AGAIN_S, "all of it", poll_s=0.5)
            wait_until(
                lambda: bounds(cluster.bootstrap, "lab.others")[1] == 21, ON_AGAIN_S, "the other topic", poll_s=0.5
            )
            wait_until(lambda: mirror.get("/health")[0] == 200, ON_AGAIN_S, "healthy")
