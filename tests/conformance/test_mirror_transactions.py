"""The mirror with transactions at Apache Kafka 4.3.1 and 3.9.2: what readers of committed records and audits find.

Invariants: whatever is killed, cut or fenced in the middle of a transaction, a reader at read_committed finds every
record once and in order, no loss and no duplicate is told, and `edge-mirror audit` proves it from both ends. A
transaction that timed out is told as that, another mirror as that. A target that has no transactions is refused.
The brokers look for transactions that are too old each half second, in place of ten.
"""

from __future__ import annotations

import subprocess
import uuid

import pytest
from confluent_kafka import IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.support import runtimes
from tests.support.mirror_road import EdgeMirror, Load, audit, committed, create_topic, numbers, produce, read_all
from tests.support.processes import ApacheKafka, EdgeBroker, TcpProxy, free_port, wait_until
from tests.support.waiting import CALL_S

PARTITIONS = 3
KILLS = 4
CUTS = 20  # at most
SETTINGS = {
    "transactions": True,
    "backoff_max_ms": 500,
    "refresh_interval_ms": 300,
    "commit_interval_ms": 200,
    "request_timeout_ms": 3000,
    "delivery_timeout_ms": 4000,
}
QUICK = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    "group.initial.rebalance.delay.ms": 0,
    "inter.broker.listener.name": "DIRECT",  # by which the markers go, and not over the link
    "broker.session.timeout.ms": 60_000,  # on a busy machine it would lead nothing for a while
}


class Road:
    """A source of its own, and a target behind a link, which is asked beside it."""

    def __init__(self, source, link, kafka):
        self.source, self.link, self.kafka = source.bootstrap, link, kafka
        self.target, self.direct = link.bootstrap, f"localhost:{kafka.ports['DIRECT']}"
        self.topic = f"readings-{uuid.uuid4().hex[:6]}"

    def mirror(self, directory, **settings):
        return EdgeMirror(
            directory, self.source, self.target, topics=self.topic, site="lab", settings={**SETTINGS, **settings}
        )

    def ends(self, partition=0):
        """The last stable offset, and the end, asked beside the link."""
        admin = AdminClient({"bootstrap.servers": self.direct})
        place = TopicPartition(f"lab.{self.topic}", partition)
        told = []
        for isolation in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
            asked = admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=isolation, request_timeout=CALL_S)
            try:
                told.append(asked[place].result(CALL_S).offset)
            except KafkaException:  # the mirror has not made it yet
                return [0, 0]
        return told

    def is_open(self):
        """Whether a transaction with data is open in some partition."""
        return any(stable < end for stable, end in map(self.ends, range(PARTITIONS)))

    def committed(self, partition=0):
        """The numbers that a reader of committed records finds."""
        return numbers(read_all(self.direct, f"lab.{self.topic}", partition))

    def wait_all(self, load):
        for partition, acked in load.acked.items():
            self.wait_for(len(acked), partition)

    def wait_for(self, count, partition):
        wait_until(lambda: len(self.committed(partition)) >= count, 60, "all mirrored", poll_s=0.5)

    def assert_each_once(self, load):
        for partition, acked in load.acked.items():
            assert self.committed(partition) == acked
        found = audit(self.source, self.target, topics=self.topic)
        assert found.proven, found.text
        return found.partitions


@pytest.fixture(scope="module", params=["4.3.1", pytest.param("3.9.2", marks=pytest.mark.night)])
def far(request, tmp_path_factory):
    jars = runtimes.old_kafka_jars() if request.param == "3.9.2" else None
    port, directory = free_port(), tmp_path_factory.mktemp("kafka")
    with (
        TcpProxy(f"127.0.0.1:{port}") as link,
        ApacheKafka(
            directory,
            port=port,
            advertise=link.bootstrap,
            settings=QUICK,
            jars=jars,
            listeners={"DIRECT": "PLAINTEXT"},
        ) as kafka,
    ):
        yield link, kafka


@pytest.fixture
def road(far, tmp_path):
    with EdgeBroker(tmp_path / "source") as source:
        road = Road(source, *far)
        create_topic(road.source, road.topic, PARTITIONS)
        yield road
        if road.link.is_cut:
            road.link.restore()


def until_at_work(road, records=300):
    before = road.ends()[0]
    wait_until(lambda: road.ends()[0] >= before + records, 30, "the mirror at work", poll_s=0.1)


def test_kills_in_the_middle_of_transactions(road, tmp_path):
    mirror = road.mirror(tmp_path)
    hits = 0
    with Load(road.source, road.topic, PARTITIONS) as load:
        mirror.start()
        wait_until(lambda: len(road.committed()) > 100, 30, "the mirror at work", poll_s=0.2)
        mirror.kill()
        for _ in range(10 * KILLS):
            mirror.start()
            until_at_work(road)
            mirror.kill()
            hits += road.is_open()
            position = committed(road.source, road.topic).offset
            assert position <= len(road.committed())
            if hits == KILLS:
                break
    assert hits == KILLS, "no transaction was open at the kills"
    with mirror:
        road.wait_all(load)
        wait_until(lambda: mirror.get("/health")[0] == 200, 20, "healthy")
        assert "read_committed" in mirror.get("/health")[1]
    told = road.assert_each_once(load)
    assert sum(one["target"]["aborted"] for one in told) > 0
    assert mirror.events("duplicates") == mirror.events("transaction_timed_out") == mirror.events("mirror_fenced") == []


def test_a_transaction_that_times_out_is_told_as_that(road, tmp_path):
    with road.mirror(tmp_path, transaction_timeout_ms=4000) as mirror:
        with Load(road.source, road.topic, PARTITIONS) as load:
            for _ in range(CUTS):
                cut_open(road)
                wait_until(lambda: not road.is_open(), 30, "it ended", poll_s=0.2)
                road.link.restore()
                until_at_work(road)
                if mirror.events("transaction_timed_out"):
                    break
        road.wait_all(load)
        wait_until(lambda: mirror.get("/health")[0] == 200, 20, "healthy")
    assert mirror.events("transaction_timed_out"), "it is told"
    told = road.assert_each_once(load)
    assert sum(one["target"]["aborted"] for one in told) > 0
    assert mirror.events("mirror_fenced") == mirror.events("duplicates") == []


def cut_open(road):
    """Cut the link while a transaction is open: between two it is mended, and cut again later.

    Its end may be under way already: then it is committed, and nothing times out.
    """
    for _ in range(CUTS):
        until_at_work(road)
        road.link.cut("blackhole")
        if road.is_open():
            return
        road.link.restore()
    raise AssertionError("no transaction was open at any cut")


def test_a_second_mirror_fences_the_first_which_says_so(road, tmp_path):
    """The other has a source of its own, so that the group there does not tell them apart."""
    with EdgeBroker(tmp_path / "other") as source:
        other = Road(source, road.link, road.kafka)
        create_topic(other.source, other.topic, PARTITIONS)
        first, second = road.mirror(tmp_path / "first"), other.mirror(tmp_path / "second")
        with Load(road.source, road.topic, PARTITIONS) as load, Load(other.source, other.topic, PARTITIONS) as another:
            first.start()
            until_at_work(road)
            second.start()
            wait_until(lambda: first.events("mirror_fenced"), 30, "the first is told", poll_s=0.2)
            first.stop()
            until_at_work(other)
        assert first.events("transaction_timed_out") == second.events("transaction_timed_out") == []
        assert "another mirror of this site" in first.events("mirror_fenced")[0]
        other.wait_all(another)
        second.stop()
        with first:
            road.wait_all(load)
        other.assert_each_once(another)
        road.assert_each_once(load)


def test_a_mirror_goes_from_the_one_mode_to_the_other_and_back(road, tmp_path):
    with Load(road.source, road.topic, PARTITIONS) as load:
        for transactions in (False, True, False, True):
            mirror = road.mirror(tmp_path, transactions=transactions)
            mirror.start()
            until_at_work(road)
            mirror.kill()
    with mirror:
        road.wait_all(load)
    road.assert_each_once(load)
    assert mirror.events("duplicates") == []


def test_the_target_allows_less_time_than_is_asked_for(road, tmp_path):
    produce(road.source, road.topic, 0, 500)
    with road.mirror(tmp_path, transaction_timeout_ms=2_000_000_000):  # its transaction.max.timeout.ms is 15 min
        wait_until(lambda: road.committed() == list(range(500)), 30, "all mirrored", poll_s=0.3)


def test_a_record_that_is_refused_holds_up_its_partition_alone(road, tmp_path):
    create_topic(road.direct, f"lab.{road.topic}", PARTITIONS, {"cleanup.policy": "compact"})
    produce(road.source, road.topic, 0, 100)
    produce(road.source, road.topic, 0, 50, partition=1)
    producer = Producer({"bootstrap.servers": road.source})
    producer.produce(road.topic, b"50 without a key", partition=1)
    assert not producer.flush(CALL_S)
    produce(road.source, road.topic, 51, 60, partition=1)
    table = '[topic.".*"]\non_refused = "dead_letter"\n'
    mirror = EdgeMirror(
        tmp_path, road.source, road.target, topics=road.topic, site="lab", settings=SETTINGS, tables=table
    )
    with mirror:
        wait_until(lambda: road.committed() == list(range(100)), 30, "one partition mirrored", poll_s=0.3)
        left = [number for number in range(60) if number != 50]
        wait_until(lambda: road.committed(1) == left, 60, "the others mirrored", poll_s=0.3)
        produce(road.source, road.topic, 100, 200)
        wait_until(lambda: road.committed() == list(range(200)), 30, "it goes on", poll_s=0.3)
    assert mirror.events("transaction_broken") == []
    found = audit(road.source, road.target, topics=road.topic)
    assert found.proven, found.text


def test_a_target_without_transactions_is_refused(tmp_path):
    with EdgeBroker(tmp_path / "source") as source, EdgeBroker(tmp_path / "target") as target:
        create_topic(source.bootstrap, "readings", 1)
        produce(source.bootstrap, "readings", 0, 10)
        config = tmp_path / "mirror.toml"
        config.write_text("transactions = true\n")
        ends = ["--source", source.bootstrap, "--target", target.bootstrap, "--topics", "readings", "--config", config]
        for command in (["plan"], ["check", "--connect"]):
            done = subprocess.run(
                [runtimes.console_script("edge-mirror"), *command, *ends], capture_output=True, text=True, check=False
            )
            assert done.returncode == 1
            assert "transactions = true, and the target has none" in done.stdout + done.stderr
        mirror = EdgeMirror(tmp_path, source.bootstrap, target.bootstrap, site="lab", settings=SETTINGS)
        with mirror:
            wait_until(lambda: "runs none for us" in mirror.get("/health")[1], 20, "it says so", poll_s=0.2)
        assert read_all(target.bootstrap, "lab.readings") == []
