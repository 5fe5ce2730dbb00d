"""The mirror to a cluster of three brokers whose leaders are killed one after the other, under load.

Its records are young, so that what a killed leader has left without an answer is sent again as it is to the heir, which
has to know it again by what it has replicated. Must never come in: one broker alone (test_mirror.py).
"""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from tests.support.apache_cluster import kraft_cluster
from tests.support.board_cluster import BoardCluster
from tests.support.mirror_road import FAST, EdgeMirror, Load, audit, create_topic, numbers, read_all, wait_mirrored
from tests.support.processes import EdgeBroker, wait_until
from tests.support.zookeeper import ZooKeeperEnsemble

PARTITIONS = 3
PER_SECOND = 600
MORE = 3 * PER_SECOND  # records that have to arrive behind each kill
ON_AGAIN_S = 60.0
APACHE = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "broker.session.timeout.ms": 2000,
    "broker.heartbeat.interval.ms": 300,
    "replica.lag.time.max.ms": 5000,
}


@contextmanager
def apache(directory):
    with kraft_cluster(directory, settings=APACHE) as cluster:
        yield cluster


@contextmanager
def edge(directory):
    with ZooKeeperEnsemble(directory / "zookeeper") as ensemble, BoardCluster(directory, ensemble) as cluster:
        yield cluster


@pytest.mark.parametrize("target", [apache, edge])
def test_killed_leaders_of_a_cluster_lose_and_double_nothing(target, tmp_path):
    with target(tmp_path / "target") as cluster, EdgeBroker(tmp_path, name="source") as source:
        create_topic(source.bootstrap, "readings", PARTITIONS)
        with EdgeMirror(tmp_path, source.bootstrap, cluster.bootstrap, site="lab", settings=FAST) as mirror:

            def wait_for_more(what):
                before = mirror.metric("edge_mirror_records_total")
                wait_until(lambda: mirror.metric("edge_mirror_records_total") >= before + MORE, ON_AGAIN_S, what)

            with Load(source.bootstrap, "readings", PARTITIONS, per_second=PER_SECOND, is_young=True) as load:
                wait_for_more("the first records")
                for partition in range(PARTITIONS):
                    cluster.wait_in_sync("lab.readings")
                    leader = cluster.leader("lab.readings", partition)
                    leader.kill()
                    wait_for_more(f"records behind the kill of {leader.name}")
                    leader.start()
            wait_mirrored(cluster.bootstrap, "lab.readings", {key: len(sent) for key, sent in load.acked.items()})
            wait_until(lambda: mirror.get("/health")[0] == 200, ON_AGAIN_S, "healthy")
            for partition, sent in load.acked.items():
                found = numbers(read_all(cluster.bootstrap, "lab.readings", partition))
                assert found == sorted(set(found)), "each once, in the source's order"
                assert set(sent) <= set(found)
            assert mirror.events("duplicates") == []
            assert mirror.metric("edge_mirror_target_lost_records_total") == 0
        found = audit(source.bootstrap, cluster.bootstrap)
        assert found.proven, found.text
