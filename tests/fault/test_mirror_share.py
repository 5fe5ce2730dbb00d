"""A partition that a target refuses, or that has no leader there, takes no more than its share from the others.

Does not contain: a target short of replicas (test_mirror_held.py), records that have their connection closed
(test_mirror_suspects.py).
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from tests.support.board_cluster import BoardCluster
from tests.support.mirror_road import EdgeMirror, bounds, create_topic
from tests.support.processes import EdgeBroker, wait_until
from tests.support.waiting import CALL_S
from tests.support.zookeeper import ZooKeeperEnsemble

PARTITIONS = 10
LARGE_BYTES = 900_000
ARRIVES_S = 30.0
BUFFER_BYTES = 8 << 20
FAST = {"refresh_interval_ms": 500, "backoff_max_ms": 1000}


@contextmanager
def two_brokers(directory):
    with EdgeBroker(directory, name="source") as source, EdgeBroker(directory, name="target") as target:
        yield source.bootstrap, target.bootstrap


def write(bootstrap, topic, partition, count, size, key=None):
    """Produce noise, so that packing takes none of it away."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "message.max.bytes": 100 << 20})
    for _ in range(count):
        producer.produce(topic, os.urandom(size), key=key, partition=partition)
        producer.flush(CALL_S)


def alter_topic(bootstrap, topic, configs):
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    resource.incremental_configs = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in configs.items()
    ]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(CALL_S)


def at_target(bootstrap):
    """The records of all partitions of readings there."""
    return sum(bounds(bootstrap, "lab.readings", number)[1] for number in range(3 * PARTITIONS))


def status(mirror):
    """The report of the mirror itself."""
    return json.loads(mirror.get("/status")[1])


def lag(mirror, topic):
    """The records of a topic that are not at the target."""
    return next((one["lag_records"] for one in status(mirror)["topics"] if one["topic"] == topic), None)


def test_partitions_that_the_target_refuses_leave_memory_to_the_others(tmp_path):
    with two_brokers(tmp_path) as (source, target):
        create_topic(source, "readings", PARTITIONS)
        create_topic(source, "others", 1)
        create_topic(target, "lab.readings", PARTITIONS, {"cleanup.policy": "compact"})
        for partition in range(PARTITIONS):
            write(source, "readings", partition, 2, LARGE_BYTES)
        with EdgeMirror(tmp_path, source, target, topics="readings|others", site="lab", settings=FAST) as mirror:
            wait_until(lambda: "refuses" in mirror.get("/health")[1], ARRIVES_S, "refusals", poll_s=0.5)
            write(source, "others", 0, 40, 1000)
            wait_until(lambda: bounds(target, "lab.others")[1] == 40, ARRIVES_S, "the other topic", poll_s=0.5)
            wait_until(lambda: mirror.metric("edge_mirror_held_bytes") > 0, ARRIVES_S, "what is held", poll_s=0.5)
            assert mirror.metric("edge_mirror_held_bytes") <= BUFFER_BYTES // 4
            wait_until(lambda: lag(mirror, "readings") == 2 * PARTITIONS, ARRIVES_S, "the true lag", poll_s=0.5)
            assert mirror.get("/health")[0] != 200
            mirror.kill()
            mirror.start()  # whose batches are bound by what the killed one may have sent
            write(source, "others", 0, 40, 1000)
            wait_until(lambda: bounds(target, "lab.others")[1] == 80, ARRIVES_S, "more of it", poll_s=0.5)


def test_a_record_larger_than_the_memory_that_is_refused_goes_on_by_itself_once_it_is_not(tmp_path):
    with two_brokers(tmp_path) as (source, target):
        create_topic(source, "readings", 1, {"max.message.bytes": str(64 << 20)})
        create_topic(source, "others", 1)
        configs = {"max.message.bytes": str(64 << 20), "cleanup.policy": "compact"}
        create_topic(target, "lab.readings", 1, configs)
        write(source, "readings", 0, 1, BUFFER_BYTES + 1000)
        write(source, "readings", 0, 3, 100, key=b"k")
        with EdgeMirror(tmp_path, source, target, topics="readings|others", site="lab", settings=FAST) as mirror:
            wait_until(lambda: "offset 0" in mirror.get("/health")[1], ARRIVES_S, "a refusal", poll_s=0.5)
            write(source, "others", 0, 40, 1000)
            wait_until(lambda: bounds(target, "lab.others")[1] == 40, ARRIVES_S, "the other topic", poll_s=0.5)
            wait_until(lambda: lag(mirror, "readings") == 4, ARRIVES_S, "the true lag", poll_s=0.5)
            alter_topic(target, "lab.readings", {"cleanup.policy": "delete"})
            wait_until(lambda: bounds(target, "lab.readings")[1] == 4, 2 * ARRIVES_S, "all of it", poll_s=0.5)
            wait_until(lambda: mirror.get("/health")[0] == 200, ARRIVES_S, "healthy", poll_s=0.5)


def test_partitions_of_a_broker_that_is_away_leave_memory_to_those_of_others(tmp_path):
    with (
        ZooKeeperEnsemble(tmp_path / "zookeeper") as ensemble,
        BoardCluster(tmp_path / "target", ensemble) as cluster,
        EdgeBroker(tmp_path, name="source") as source,
    ):
        create_topic(source.bootstrap, "readings", 3 * PARTITIONS)
        create_topic(cluster.bootstrap, "lab.readings", 3 * PARTITIONS)  # each has one replica
        create_topic(source.bootstrap, "others", 1)
        with EdgeMirror(
            tmp_path, source.bootstrap, cluster.bootstrap, topics="readings|others", site="lab", settings=FAST
        ):
            for partition in range(3 * PARTITIONS):
                write(source.bootstrap, "readings", partition, 1, 100)
            wait_until(lambda: at_target(cluster.bootstrap) == 3 * PARTITIONS, ARRIVES_S, "the first", poll_s=0.5)
            cluster.board(3).kill()
            for partition in range(3 * PARTITIONS):
                write(source.bootstrap, "readings", partition, 2, LARGE_BYTES)
            write(source.bootstrap, "others", 0, 40, 1000)
            bootstrap = cluster.board(1).bootstrap
            wait_until(lambda: bounds(bootstrap, "lab.others")[1] == 40, 2 * ARRIVES_S, "the other topic", poll_s=0.5)
            cluster.board(3).start()
            wait_until(lambda: at_target(bootstrap) == 9 * PARTITIONS, 2 * ARRIVES_S, "all of it", poll_s=0.5)


def test_a_topic_that_cannot_be_made_at_the_target_shows_its_lag_and_why_it_stands(tmp_path):
    with two_brokers(tmp_path) as (source, target):
        create_topic(source, "readings", 1)
        create_topic(source, "others", 1)
        write(source, "readings", 0, 7, 100)
        settings = {**FAST, "target_replication_factor": 3, "stall_timeout_ms": 2000}
        with EdgeMirror(tmp_path, source, target, topics="readings|others", site="lab", settings=settings) as mirror:
            wait_until(lambda: lag(mirror, "readings") == 7, ARRIVES_S, "the lag", poll_s=0.5)
            wait_until(lambda: "stalled" in mirror.get("/health")[1], ARRIVES_S, "a stall", poll_s=0.5)
            told = next(one for one in status(mirror)["partitions"] if one["topic"] == "readings")
            assert "cannot be created" in told["trouble"]
            assert mirror.metric("edge_mirror_stalled_partitions") == 1
