"""The mirror to three brokers of Apache Kafka, one killed, where a topic wants all three replicas in sync.

Its leaders refuse what is sent, or have it and answer NOT_ENOUGH_REPLICAS_AFTER_APPEND. Fences and ends of transactions
wait for the same replicas: with transactions the other topics do, too, and /health says so. Does not contain: killed
leaders of topics that take records (test_mirror_cluster.py), our own brokers (test_mirror_held.py).
"""

from __future__ import annotations

import pytest

from tests.support.apache_cluster import kraft_cluster
from tests.support.mirror_road import FAST, EdgeMirror, Load, audit, bounds, create_topic, numbers, produce, read_all
from tests.support.processes import EdgeBroker, wait_until

PARTITIONS = 3
PER_SECOND = 300
REFUSED = 2 * PER_SECOND  # records that are written while the topic is short of replicas
ON_AGAIN_S = 60.0
APACHE = {
    "default.replication.factor": 3,
    "broker.session.timeout.ms": 2000,
    "broker.heartbeat.interval.ms": 300,
    "replica.lag.time.max.ms": 3000,
    "group.initial.rebalance.delay.ms": 0,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with kraft_cluster(tmp_path_factory.mktemp("target"), settings=APACHE, java_options=["-Xmx384m"]) as cluster:
        yield cluster


def wait_for_all(bootstrap, topic, partition, count):
    def are_there():
        return bounds(bootstrap, topic, partition)[1] >= count and len(read_all(bootstrap, topic, partition)) >= count

    wait_until(are_there, ON_AGAIN_S, "all mirrored", poll_s=0.5)


@pytest.mark.parametrize("transactions", [False, True])
def test_a_target_short_of_replicas_doubles_nothing(cluster, tmp_path, transactions):
    topic, other = f"readings-{transactions}", f"others-{transactions}"
    with EdgeBroker(tmp_path, name="source") as source:
        create_topic(source.bootstrap, topic, PARTITIONS)
        create_topic(source.bootstrap, other, 1)
        cluster.make_topic(f"lab.{topic}", PARTITIONS, min_insync_replicas="3")
        settings = {**FAST, "transactions": transactions}
        with EdgeMirror(
            tmp_path, source.bootstrap, cluster.bootstrap, topics=f"{topic}|{other}", site="lab", settings=settings
        ) as mirror:
            with Load(source.bootstrap, topic, PARTITIONS, per_second=PER_SECOND, is_young=True) as load:

                def wait_for_load(count):
                    enough = [len(acked) + count // PARTITIONS for acked in load.acked.values()]
                    wait_until(
                        lambda: all(len(acked) > much for acked, much in zip(load.acked.values(), enough, strict=True)),
                        ON_AGAIN_S,
                        "more records at the source",
                    )

                for partition in range(PARTITIONS):
                    wait_for_all(cluster.bootstrap, f"lab.{topic}", partition, 1)
                killed = cluster.leader(f"lab.{topic}")
                killed.kill()
                wait_until(lambda: topic in mirror.get("/health")[1], ON_AGAIN_S, "its name", poll_s=0.2)
                wait_for_load(REFUSED)
                produce(source.bootstrap, other, 0, 500, is_young=True)
                if not transactions:  # else its last transaction may have no end before that broker is back
                    wait_for_all(cluster.bootstrap, f"lab.{other}", 0, 500)
                killed.start()
                cluster.wait_in_sync(f"lab.{topic}")
                wait_for_load(REFUSED)
            wait_for_all(cluster.bootstrap, f"lab.{other}", 0, 500)
            assert numbers(read_all(cluster.bootstrap, f"lab.{other}")) == list(range(500))
            for partition, sent in load.acked.items():
                wait_for_all(cluster.bootstrap, f"lab.{topic}", partition, len(sent))
                assert numbers(read_all(cluster.bootstrap, f"lab.{topic}", partition)) == sent
            wait_until(lambda: mirror.get("/health")[0] == 200, ON_AGAIN_S, "healthy", poll_s=0.2)
            assert mirror.events("duplicates") == []
            assert mirror.metric("edge_mirror_target_lost_records_total") == 0
        found = audit(source.bootstrap, cluster.bootstrap, topics=topic)
        assert found.proven, found.text
