"""The mirror to three brokers of Apache Kafka, one killed, where a topic wants all three replicas in sync.

Its leaders refuse what is sent, or have it and answer NOT_ENOUGH_REPLICAS_AFTER_APPEND. Fences and ends of transactions
wait for the same replicas. The other topics go on, with transactions under a spare transactional id where the topic was
in the last one. A mirror that starts meanwhile goes on once the broker is back. Does not contain: killed leaders of
topics that take records (test_mirror_cluster.py), our own brokers (test_mirror_held.py).
"""

from __future__ import annotations

import time

import pytest

from mirror.session.marker_partitions import KNOWN_S
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
    with kraft_cluster(tmp_path_factory.mktemp("target"), settings=APACHE) as cluster:
        yield cluster


def wait_for_all(bootstrap, topic, partition, count):
    def are_there():
        return bounds(bootstrap, topic, partition)[1] >= count and len(read_all(bootstrap, topic, partition)) >= count

    wait_until(are_there, ON_AGAIN_S, "all mirrored", poll_s=0.5)


@pytest.mark.parametrize("transactions", [pytest.param(False, marks=pytest.mark.night), True])
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


@pytest.mark.parametrize("is_leader", [True, pytest.param(False, marks=pytest.mark.night)])
def test_a_quiet_topic_that_falls_short_holds_up_no_other_in_transactions(cluster, tmp_path, is_leader):
    """A transaction with its partitions would have no end before the brokers are back."""
    topic, other = f"quiet-{is_leader}", f"busy-{is_leader}"
    with EdgeBroker(tmp_path, name="source") as source:
        create_topic(source.bootstrap, topic, 1)
        create_topic(source.bootstrap, other, 1)
        cluster.make_topic(f"lab.{topic}", 1, min_insync_replicas="3")
        settings = {**FAST, "transactions": True}
        with EdgeMirror(
            tmp_path, source.bootstrap, cluster.bootstrap, topics=f"{topic}|{other}", site="lab", settings=settings
        ) as mirror:
            for name in (topic, other):
                produce(source.bootstrap, name, 0, 100, is_young=True)
                wait_for_all(cluster.bootstrap, f"lab.{name}", 0, 100)
            committed_at = time.monotonic()
            leader = cluster.leader(f"lab.{topic}")
            killed = leader if is_leader else next(board for board in cluster.boards if board is not leader)
            killed.kill()
            wait_until(
                lambda: len(cluster.partitions(f"lab.{topic}")[0].isrs) == 2, ON_AGAIN_S, "it is short", poll_s=0.5
            )
            wait_until(lambda: time.monotonic() - committed_at > KNOWN_S, ON_AGAIN_S, "it is quiet", poll_s=0.2)
            produce(source.bootstrap, topic, 100, 200, is_young=True)
            wait_until(lambda: "in-sync replicas" in mirror.get("/health")[1], ON_AGAIN_S, "its name", poll_s=0.2)
            for upto in (200, 300, 400):  # several transactions
                produce(source.bootstrap, other, upto - 100, upto, is_young=True)
                wait_for_all(cluster.bootstrap, f"lab.{other}", 0, upto)
            assert mirror.get("/health")[0] == 503
            killed.start()
            cluster.wait_in_sync(f"lab.{topic}")
            wait_for_all(cluster.bootstrap, f"lab.{topic}", 0, 200)
            wait_until(lambda: mirror.get("/health")[0] == 200, ON_AGAIN_S, "healthy", poll_s=0.2)
        found = audit(source.bootstrap, cluster.bootstrap, topics=f"{topic}|{other}")
        assert found.proven, found.text


@pytest.mark.parametrize("then", [True, pytest.param(False, marks=pytest.mark.night)])
def test_a_mirror_that_starts_while_a_transaction_has_no_end_goes_on_once_the_broker_is_back(cluster, tmp_path, then):
    """It runs transactions (`then`), or none; what the one before has sent under a spare id is not sent again."""
    topic, other = f"steady-{then}", f"beside-{then}"
    with EdgeBroker(tmp_path, name="source") as source:
        create_topic(source.bootstrap, topic, PARTITIONS)
        create_topic(source.bootstrap, other, 1)
        cluster.make_topic(f"lab.{topic}", PARTITIONS, min_insync_replicas="3")

        def mirror_with(transactions):
            return EdgeMirror(
                tmp_path,
                source.bootstrap,
                cluster.bootstrap,
                topics=f"{topic}|{other}",
                site="lab",
                settings={**FAST, "transactions": transactions},
            )

        with Load(source.bootstrap, topic, PARTITIONS, per_second=PER_SECOND, is_young=True) as load:
            with mirror_with(True) as mirror:
                for partition in range(PARTITIONS):
                    wait_for_all(cluster.bootstrap, f"lab.{topic}", partition, 1)
                produce(source.bootstrap, other, 0, 100, is_young=True)
                wait_for_all(cluster.bootstrap, f"lab.{other}", 0, 100)
                killed = cluster.leader(f"lab.{topic}")
                killed.kill()
                wait_until(lambda: topic in mirror.get("/health")[1], ON_AGAIN_S, "its name", poll_s=0.2)
                for upto in (200, 300):
                    produce(source.bootstrap, other, upto - 100, upto, is_young=True)
                    wait_for_all(cluster.bootstrap, f"lab.{other}", 0, upto)
                mirror.kill()
            with mirror_with(then) as mirror:
                produce(source.bootstrap, other, 300, 400, is_young=True)
                killed.start()
                cluster.wait_in_sync(f"lab.{topic}")
                wait_for_all(cluster.bootstrap, f"lab.{other}", 0, 400)
                wait_until(lambda: mirror.get("/health")[0] == 200, ON_AGAIN_S, "healthy", poll_s=0.2)
        with mirror_with(then) as mirror:  # and after a restart with all well
            for partition, sent in load.acked.items():
                wait_for_all(cluster.bootstrap, f"lab.{topic}", partition, len(sent))
                assert numbers(read_all(cluster.bootstrap, f"lab.{topic}", partition)) == sent
            assert numbers(read_all(cluster.bootstrap, f"lab.{other}")) == list(range(400))
            assert mirror.events("duplicates") == []
        found = audit(source.bootstrap, cluster.bootstrap, topics=f"{topic}|{other}")
        assert found.proven, found.text
