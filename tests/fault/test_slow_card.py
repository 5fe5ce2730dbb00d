"""A card of 2 MB/s under a broker: one producer floods, one consumer catches up from cold data, the others live on.

What is asserted are conditions, no times: while a write of the flood hangs in the kernel the broker answers everybody
who needs no write, and no group loses a member. The times are printed: what others waited for, while the flood ran.
"""

import time
import urllib.request

import pytest
from confluent_kafka import Consumer, Producer

from edge_broker.protocol.api import FETCH, METADATA
from edge_broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from edge_broker.protocol.messages.metadata import MetadataRequest
from tests.benchmarks.load import ask, batch_of, connect, frame, produce_frame
from tests.fault.disk import FuseDisk
from tests.fault.workload import QUICK, Worker
from tests.support.kafka_reading import create_topic
from tests.support.processes import EdgeBroker, wait_until
from tests.support.waiting import CALL_S

pytestmark = pytest.mark.root("fuse")
CARD_BYTES_PER_S = 2_000_000
COLD_RECORDS = 4_000
RECORD_BYTES = 1_000
SEGMENT_BYTES = 4 << 20  # above the card's buffer: else closing a segment empties that before a write has to wait
FLOOD_BYTES = 8_000_000
ANSWERS_WHILE_HUNG = 30
ANSWERS_BEYOND_A_SESSION = 800  # one each 10 ms: a member whose heartbeats were not answered would be given up


class Flood(Worker):
    """A producer that never waits for an answer, acks=1."""

    acked_bytes = 0

    def work(self):
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": 1, "queue.buffering.max.kbytes": 4096})
        while not self.stopping.is_set():
            try:
                producer.produce(self.topic, bytes(10_000), on_delivery=self._note)
            except BufferError:
                producer.poll(0.05)
        assert producer.flush(CALL_S) == 0

    def _note(self, error, message):
        assert error is None, error
        self.acked_bytes += len(message.value())


class Member(Worker):
    """A consumer in a group of its own, from the start; how often it was given its partition, and what it read."""

    assignments = 0
    read = 0

    def work(self):
        settings = {"group.id": self.name, "auto.offset.reset": "earliest", "session.timeout.ms": 6000}
        settings["enable.auto.commit"] = False  # a commit waits for the disk, and its connection's heartbeats behind it
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "heartbeat.interval.ms": 500, **settings, **QUICK})
        consumer.subscribe([self.topic], on_assign=self._assigned)
        while not self.stopping.is_set():
            self.read += sum(not message.error() for message in consumer.consume(500, timeout=0.1))
        consumer.close()

    def _assigned(self, _consumer, _partitions):
        self.assignments += 1


class Prober(Worker):
    """One request after another on a connection of its own; how long each answer took, s."""

    def __init__(self, name, port, request):
        super().__init__(name, "", "")
        self.port, self.request = port, request
        self.waited = []

    @property
    def done(self):
        return len(self.waited)

    def work(self):
        with connect(self.port) as connection:
            while not self.stopping.wait(0.01):
                begin = time.perf_counter()
                ask(connection, self.request)
                self.waited.append(time.perf_counter() - begin)


def _probers(port):
    tail = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    fetch = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic="empty", partitions=[tail])])
    return [
        Prober("Metadata", port, frame(METADATA, 9, MetadataRequest(topics=None))),
        Prober("Fetch at the end", port, frame(FETCH, 12, fetch)),
        Prober("Produce acks=1", port, produce_frame("quiet", 0, batch_of(1, 100), acks=1)),
    ]


@pytest.fixture
def broker_and_disk(tmp_path):
    """A broker that begins to read what it wrote before, from a card that is slow from now on."""
    with FuseDisk(tmp_path) as disk:
        broker = EdgeBroker(tmp_path, data_dir=disk.mountpoint / "data", settings={"log.segment.bytes": SEGMENT_BYTES})
        with broker:
            for name in ("flood", "cold", "quiet", "empty"):
                create_topic(broker.bootstrap, name)
            producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
            for _ in range(COLD_RECORDS):
                producer.produce("cold", bytes(RECORD_BYTES))
            assert producer.flush(CALL_S) == 0
            disk.cut(broker, keep=True)
            broker.start()
            disk.throttle(CARD_BYTES_PER_S)
            yield broker, disk


def test_a_flood_and_a_catch_up_on_a_slow_card_take_nobody_else_down(broker_and_disk, is_long):
    answers = ANSWERS_BEYOND_A_SESSION if is_long else ANSWERS_WHILE_HUNG
    broker, disk = broker_and_disk
    flood = Flood("flood", broker.bootstrap, "flood")
    members = [Member("catching-up", broker.bootstrap, "cold"), Member("waiting", broker.bootstrap, "empty")]
    probers = _probers(broker.port)
    workers = [flood, *members, *probers]
    for worker in workers:
        worker.start()
    try:
        _all_goes_on(flood, members, probers)
        _print(probers)
        wait_until(lambda: _finds_it_slow(broker, workers), 30, "the broker finds its disk slow")
        for kind in ("write", "datasync"):
            _a_hung_call_hangs_nobody(disk, kind, probers[:2], answers)
    finally:
        disk.release()
        disk.throttle(None)
        for worker in workers:
            worker.stopping.set()
    for worker in workers:
        worker.finish()
    assert [member.assignments for member in members] == [1, 1], "a member was taken for dead"


def _finds_it_slow(broker, workers):
    for worker in workers:
        worker.check()
    with urllib.request.urlopen(broker.metrics_url, timeout=CALL_S) as answer:
        return "edge_broker_disk_slow 1\n" in answer.read().decode()


def _all_goes_on(flood, members, probers):
    """Each comes to its end while the others are at work."""

    def done():
        for worker in (flood, *members, *probers):
            worker.check()
        return flood.acked_bytes >= FLOOD_BYTES and members[0].read == COLD_RECORDS

    wait_until(done, 60, "the flood is stored and the cold data read")


def _a_hung_call_hangs_nobody(disk, kind, probers, answers):
    """While a write or a sync of the flood does not return, requests that write nothing are answered on and on."""
    disk.hang([kind], r"^/data/flood-0/\d+\.log$")
    wait_until(lambda: disk.state()["hanging"], 30, f"a {kind} hangs")
    before = [prober.done for prober in probers]
    wait_until(
        lambda: all(prober.done >= done + answers for prober, done in zip(probers, before, strict=True)),
        60,
        f"requests are answered while a {kind} hangs",
    )
    assert disk.state()["hanging"] == 1
    disk.release()


def _print(probers):
    for prober in probers:
        waited = sorted(prober.waited)
        p50, p99 = (1000 * waited[len(waited) * percent // 100] for percent in (50, 99))
        print(
            f"{prober.name}: p50 {p50:.1f} ms, p99 {p99:.1f} ms, greatest {1000 * waited[-1]:.1f} ms of {len(waited)}"
        )
