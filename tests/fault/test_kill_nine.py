"""kill -9 of the broker under load, again and again.

Invariants checked, with idempotent producers (acks=all) and committing consumers of two client libraries:
1. every acked record is in the log once, at the offset that its ack named, with its own value;
2. what a consumer has read at a place (partition, offset) never changes and never disappears;
3. the log never ends before what was acked or read, right after each restart;
4. an answered commit is kept: the group's offset is never behind it after a restart;
5. no new batch is taken for a duplicate: two acks never name one place, neither for producers that live through the
   kills nor for one that is new in each round (its producer id must not have been given away before);
6. each producer's records keep their order within a partition;
7. leader epochs rise: records of a later round carry a higher epoch than those of the round before.
"""

import random
from collections import defaultdict

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.fault.workload import (
    PARTITIONS,
    QUICK,
    AioReader,
    AioWriter,
    ConfluentReader,
    Notes,
    Writer,
    produce,
)
from tests.support.kafka_reading import CALL_S, create_topic, read_topic
from tests.support.processes import ApacheKafka, EdgeBroker, wait_until

TOPIC = "readings"
ACKS_PER_ROUND = 150


@pytest.fixture
def broker_and_rounds(request, tmp_path):
    """Apache Kafka takes 12 s to come back after a kill, so it gets fewer rounds."""
    if request.config.getoption("--broker") == "kafka":
        kafka = ApacheKafka(tmp_path, settings={"group.initial.rebalance.delay.ms": 0})
        with kafka:
            yield kafka, 3
    else:
        with EdgeBroker(tmp_path) as edge:
            yield edge, 20


class Rounds:
    """The clients of one run, and what holds after each kill."""

    def __init__(self, broker):
        self.broker = broker
        where = (broker.bootstrap, TOPIC)
        self.writers = [Writer("writer-1", *where), Writer("writer-2", *where), AioWriter("aio-writer", *where)]
        self.reader = ConfluentReader("reader", *where)
        self.readers = [self.reader, AioReader("aio-reader", *where)]
        self.newcomers = []

    @property
    def workers(self):
        return [*self.writers, *self.readers]

    def all_notes(self):
        return [*(worker.notes for worker in self.workers), *self.newcomers]

    def is_working(self, before):
        """Whether every worker got on by enough since `before`; raises when one died."""
        for worker in self.workers:
            worker.check()
        return all(len(worker.notes.values) >= before[worker] + ACKS_PER_ROUND for worker in self.workers)

    def progress(self):
        return {worker: len(worker.notes.values) for worker in self.workers}

    def kill_and_restart(self, chance):
        before = self.progress()
        wait_until(lambda: self.is_working(before), 40, "every client works", poll_s=chance.uniform(0.001, 0.05))
        self.broker.kill()
        promised = self.ends()
        commits = {reader.group: dict(reader.commits) for reader in self.readers}
        self.broker.start()
        self.check_ends(promised)
        self.check_commits(commits)

    def ends(self):
        """Per partition, the first offset that nothing was promised for."""
        ends = dict.fromkeys(range(PARTITIONS), 0)
        for notes in self.all_notes():
            for partition, offset in list(notes.values):
                ends[partition] = max(ends[partition], offset + 1)
        return ends

    def check_ends(self, promised):
        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": "-"})
        for partition, end in promised.items():
            _, found = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=CALL_S)
            assert found >= end, f"partition {partition} ends at {found}, promised was {end}"
        consumer.close()

    def check_commits(self, commits):
        for group, promised in commits.items():
            consumer = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": group})
            places = [TopicPartition(TOPIC, partition) for partition in promised]
            for found in consumer.committed(places, timeout=CALL_S) if places else ():
                assert found.error is None
                assert found.offset >= promised[found.partition], f"{group}: committed {promised}, found {found}"
            consumer.close()

    def add_newcomer(self, number):
        """A new idempotent producer, acked for a few records while the others work."""
        notes = Notes(f"newcomer-{number}")
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "enable.idempotence": True, **QUICK})
        for record in range(2 * PARTITIONS):
            produce(producer, TOPIC, record, notes)
        assert producer.flush(30) == 0
        assert len(notes.values) == 2 * PARTITIONS, f"two acks for one place: {notes.values}"
        self.newcomers.append(notes)


@pytest.mark.timeout(400)
def test_nothing_promised_is_lost_over_many_kills(broker_and_rounds):
    broker, rounds = broker_and_rounds
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    create_topic(broker.bootstrap, TOPIC, PARTITIONS)
    run = Rounds(broker)
    for worker in run.workers:
        worker.start()
    newcomer_epochs = []
    for number in range(rounds):
        run.kill_and_restart(chance)
        run.add_newcomer(number)
        place = max(run.newcomers[-1].values)
        wait_until(lambda: place in run.reader.epochs, 40, "the newcomer's record is read")  # noqa: B023
        newcomer_epochs.append(run.reader.epochs[place])
    for worker in run.writers:
        worker.finish()
    log = read_topic(broker.bootstrap, TOPIC, 60)
    ends = {
        partition: max(read.offset for read in log if read.partition == partition) for partition in range(PARTITIONS)
    }
    wait_until(lambda: all(place in run.reader.notes.values for place in ends.items()), 40, "the reader is at the end")
    for worker in run.readers:
        worker.finish()
    _judge(run, {(read.partition, read.offset): read.value for read in log})
    assert newcomer_epochs == sorted(set(newcomer_epochs)), "an unclean start did not raise the leader epoch"


def _judge(run, log):
    """Compare what the log holds at the end with what every client was promised or shown."""
    assert [violation for notes in run.all_notes() for violation in notes.violations] == []
    for notes in run.all_notes():
        wrong = {place: (value, log.get(place)) for place, value in notes.values.items() if log.get(place) != value}
        assert not wrong, f"{notes.name} was promised or shown what the log does not hold: {list(wrong.items())[:5]}"
    acked = [(place, value) for notes in _writers_notes(run) for place, value in notes.values.items()]
    assert len({place for place, _ in acked}) == len(acked), "one place was acked to two producers"
    assert len(set(log.values())) == len(log), "a record is stored twice"
    _check_order(log)


def _writers_notes(run):
    return [*(worker.notes for worker in run.writers), *run.newcomers]


def _check_order(log):
    numbers = defaultdict(list)
    for partition, offset in sorted(log):
        name, _, number = log[partition, offset].decode().rpartition("-")
        numbers[partition, name].append(int(number))
    for (partition, name), found in numbers.items():
        assert found == sorted(found), f"{name} is out of order in partition {partition}"
