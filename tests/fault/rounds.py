"""Clients that work on while their broker is taken away and comes back, round after round, and what must hold then.

With idempotent producers (acks=all) and committing consumers of two client libraries, and an admin that makes, fills
and deletes topics:
1. every acked record is in the log once, at the offset that its ack named, with its own value; in a topic with
   retention, unless the log begins behind it; in a compacted topic, unless a later one has its key;
2. what a consumer has read at a place (partition, offset) never changes and never disappears;
3. the log never ends before what was acked or read, right after each restart;
4. an answered commit is kept: the group's offset is never behind it after a restart;
5. no new batch is taken for a duplicate: two acks never name one place, neither for producers that live through the
   losses nor for one that is new in each round (its producer id must not have been given away before);
6. each producer's records keep their order within a partition;
7. leader epochs rise: records of a later round carry a higher epoch than those of the round before, or at least the
   same where that one only refused writes;
8. a topic whose creation was answered is there, one whose deletion was answered is not;
9. of a topic that an operator works on while it is written to: its records are as in 1, a partition starts where an
   answered DeleteRecords said and nowhere else, and answered partitions and configurations are there.

Must never come in: how the broker is taken away.
"""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Self

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from tests.fault.workload import (
    PARTITIONS,
    AioReader,
    AioWriter,
    ConfluentReader,
    Newcomer,
    Notes,
    Operator,
    Place,
    Reader,
    TopicChurn,
    Writer,
)
from tests.support.kafka_reading import read_topic
from tests.support.mirror_road import bounds
from tests.support.processes import ApacheKafka, EdgeBroker
from tests.support.runtimes import console_script
from tests.support.waiting import CALL_S, wait_until

TOPIC = "readings"
PASSING = "passing"
SMALL_SEGMENTS = {"segment.bytes": "16384"}
LATEST = "latest"
OPERATED = "operated"
AWAY = (KafkaError.KAFKA_STORAGE_ERROR, KafkaError.NOT_LEADER_FOR_PARTITION)  # Kafka just after a start
KEYS = 20
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.05", "segment.bytes": "8192"}
EXPIRING = {"segment.bytes": "4096", "retention.bytes": "8192"}
EDGE_SETTINGS = {
    "auto.create.topics.enable": "false",
    "log.cleaner.backoff.ms": 100,
    "log.retention.check.interval.ms": 100,
    "offsets.topic.segment.bytes": 4096,
    "log.flush.offset.checkpoint.interval.ms": 200,
}


class Rounds:
    """The clients of one run, and what holds after each loss; `progress` is how much each client does in a round."""

    def __init__(self, broker: EdgeBroker | ApacheKafka, progress: int, chance: Random) -> None:
        self.broker = broker
        self.progress = progress
        self._edge = edge = isinstance(broker, EdgeBroker)
        self._create(TOPIC, SMALL_SEGMENTS if edge else {})
        self._create(PASSING, EXPIRING if edge else {})
        self._create(LATEST, COMPACTED if edge else {"cleanup.policy": "compact"})
        where = (broker.bootstrap, TOPIC)
        self.writers = [Writer("writer-1", *where), Writer("writer-2", *where), AioWriter("aio-writer", *where)]
        self.reader = ConfluentReader("reader", *where)
        self.readers: list[Reader] = [self.reader, AioReader("aio-reader", *where)]
        self.passing = Writer("passing-writer", broker.bootstrap, PASSING)
        self.latest = Writer("latest-writer", broker.bootstrap, LATEST, KEYS)
        self.churn = TopicChurn("churn", broker.bootstrap)
        self._create(OPERATED, SMALL_SEGMENTS if edge else {})
        self.operated = Writer("operated-writer", broker.bootstrap, OPERATED)
        self.operator = Operator("operator", broker.bootstrap, OPERATED, self.operated.notes, chance)
        self.newcomers: list[Newcomer] = []
        self.rises: list[bool] = []  # for each round, whether a newcomer of the next one must find a higher epoch

    def __enter__(self) -> Self:
        """Let the clients begin."""
        for worker in self.workers:
            worker.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """Let no client outlive a failure; after `finish` there is none."""
        for worker in self.workers:
            worker.stopping.set()

    def _create(self, name: str, config: Mapping[str, str]) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        made = admin.create_topics([NewTopic(name, PARTITIONS, 1, config=dict(config))], request_timeout=CALL_S)
        made[name].result(CALL_S)

    @property
    def workers(self) -> list[Writer | AioWriter | Reader | TopicChurn | Operator]:
        return [*self.writers, *self.readers, self.passing, self.latest, self.churn, self.operated, self.operator]

    def _notes(self) -> list[Notes]:
        """Whoever was promised or shown something about the topic that keeps everything."""
        return [worker.notes for worker in [*self.writers, *self.readers, *self.newcomers]]

    def run(self, lose: Callable[[], None], chance: Random, *, raises_epoch: bool = True) -> None:
        """One round: work, lose the broker, have it back, look at what it has."""
        self.rises.append(raises_epoch)
        before = {worker: worker.done for worker in self.workers}
        self.newcomers.append(Newcomer(f"newcomer-{len(self.newcomers)}", self.broker.bootstrap, TOPIC))
        self.newcomers[-1].start()
        wait_until(self._newcomer_is_read, 60, "a new producer's records are read")
        wait_until(lambda: self._is_working(before), 60, "every client works", poll_s=chance.uniform(0.001, 0.05))
        lose()
        promised = self._ends()
        commits = {reader.group: dict(reader.commits) for reader in self.readers}
        topics = dict(self.churn.known)
        if not self.broker.running:
            self.broker.start()
        self._check_ends(promised)
        self._check_commits(commits)
        self._check_topics(topics)

    def _is_working(self, before: Mapping[object, int]) -> bool:
        """Whether every worker got on by enough; raises when one died."""
        for worker in self.workers:
            worker.check()
        return all(worker.done >= before[worker] + worker.share(self.progress) for worker in self.workers)

    def _ends(self) -> dict[int, int]:
        """Per partition, the first offset that nothing was promised for."""
        notes = self._notes()
        return {partition: max(known.ends.get(partition, 0) for known in notes) for partition in range(PARTITIONS)}

    def _check_ends(self, promised: Mapping[int, int]) -> None:
        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": "-"})
        for partition, end in promised.items():
            found = wait_until(partial(_end, consumer, partition), 30, f"partition {partition} is online")
            assert found[0] >= end, f"partition {partition} ends at {found[0]}, promised was {end}"
        consumer.close()

    def _check_commits(self, commits: Mapping[str, Mapping[int, int]]) -> None:
        for group, promised in commits.items():
            consumer = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": group})
            places = [TopicPartition(TOPIC, partition) for partition in promised]
            for found in consumer.committed(places, timeout=CALL_S) if places else ():
                assert found.error is None
                assert found.offset >= promised[found.partition], f"{group}: committed {promised}, found {found}"
            consumer.close()

    def _check_topics(self, promised: Mapping[str, tuple[int, bool | None]]) -> None:
        found = AdminClient({"bootstrap.servers": self.broker.bootstrap}).list_topics(timeout=CALL_S).topics
        for name, (number, there) in promised.items():
            if there is not None and self.churn.known[name] == (number, there):
                assert (name in found) == there, f"{name} was {'made' if there else 'deleted'}; found {sorted(found)}"

    def _newcomer_is_read(self) -> bool:
        """Whether the round's new producer got all its acks, and a consumer its records."""
        newcomer = self.newcomers[-1]
        newcomer.check()
        return not newcomer.is_alive() and max(newcomer.notes.values) in self.reader.epochs

    def finish(self) -> None:
        """Let the clients work until log cleaning has, too, then end each in order and judge the whole log."""
        if self._edge:
            wait_until(self._is_cleaned, 60, "retention and compaction under load", poll_s=0.2, seen=self._cleaning)
        for worker in [*self.writers, self.passing, self.latest, self.churn, self.operated, self.operator]:
            worker.finish()
        log = {(read.partition, read.offset): read.value for read in read_topic(self.broker.bootstrap, TOPIC, 60)}
        ends = {partition: max(at for found, at in log if found == partition) for partition in range(PARTITIONS)}
        everywhere = list(ends.items())
        wait_until(lambda: all(at in self.reader.notes.values for at in everywhere), 40, "the reader is at the end")
        for reader in self.readers:
            reader.finish()
        self._judge(log)
        self._judge_passing()
        self._judge_latest()
        self._judge_operated()
        if isinstance(self.broker, EdgeBroker):
            prove_ledger(self.broker)

    def _cleaning(self) -> tuple[int, int]:
        """How far retention moved a log's start, and how many acked records of keys compaction took."""
        for worker in self.workers:
            worker.check()
        acked = len(self.latest.notes.values)
        return max(self._starts()), acked - len(read_topic(self.broker.bootstrap, LATEST, 60))

    def _starts(self) -> list[int]:
        """Where the topic with retention begins, by partition."""
        return [bounds(self.broker.bootstrap, PASSING, partition)[0] for partition in range(PARTITIONS)]

    def _is_cleaned(self) -> bool:
        return min(self._cleaning()) > 0

    def _judge(self, log: Mapping[Place, bytes | None]) -> None:
        """Compare what the log holds at the end with what every client was promised or shown."""
        for notes in self._notes():
            assert notes.violations == []
            wrong = {place: (value, log.get(place)) for place, value in notes.values.items() if log.get(place) != value}
            assert not wrong, (
                f"{notes.name} was promised or shown what the log does not hold: {list(wrong.items())[:5]}"
            )
        acked = [place for worker in [*self.writers, *self.newcomers] for place in worker.notes.values]
        assert len(set(acked)) == len(acked), "one place was acked to two producers"
        assert len(set(log.values())) == len(log), "a record is stored twice"
        _check_order(log)
        epochs = [self.reader.epochs[max(worker.notes.values)] for worker in self.newcomers]
        for before, after, rises in zip(epochs, epochs[1:], self.rises, strict=False):
            assert after >= before + rises, f"an unclean start did not raise the leader epoch: {epochs}"

    def _judge_passing(self) -> None:
        """In a topic with retention, what is acked is there, or lies before the log's start."""
        log: dict[Place, bytes | None] = {}

        def read_in_peace() -> bool:
            """Whether retention removed nothing while it was read: a reader that it overtakes goes on at the end."""
            log.clear()
            before = self._starts()
            reads = read_topic(self.broker.bootstrap, PASSING, 60)
            log.update({(read.partition, read.offset): read.value for read in reads})
            return self._starts() == before

        wait_until(read_in_peace, 60, f"{PASSING} read while retention removes nothing", seen=self._starts)
        starts = {partition: min(at for found, at in log if found == partition) for partition in range(PARTITIONS)}
        notes = self.passing.notes
        kept = {place: value for place, value in notes.values.items() if place[1] >= starts[place[0]]}
        assert notes.violations == []
        assert {place: log.get(place) for place in kept} == kept
        assert not self._edge or max(starts.values()) > 0, "retention removed nothing meanwhile"
        _check_order(log)

    def _judge_operated(self) -> None:
        """What is acked is there, or lies before a start that was asked for; what was answered holds."""
        operator, notes = self.operator, self.operated.notes
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        partitions = len(admin.list_topics(OPERATED, timeout=CALL_S).topics[OPERATED].partitions)
        assert operator.partitions <= partitions <= operator.partitions + 1
        log = {(read.partition, read.offset): read.value for read in read_topic(self.broker.bootstrap, OPERATED, 60)}
        starts = {partition: bounds(self.broker.bootstrap, OPERATED, partition)[0] for partition in range(PARTITIONS)}
        for partition, start in starts.items():
            answered = operator.starts.get(partition, 0) if self._edge else 0  # Kafka writes it down once a minute
            assert answered <= start <= operator.asked.get(partition, 0)
        assert notes.violations == []
        kept = {place: value for place, value in notes.values.items() if place[1] >= starts[place[0]]}
        assert {place: log.get(place) for place in kept} == kept
        assert not self._edge or max(starts.values()) > 0, "no record was deleted meanwhile"
        _check_order(log)
        resource = ConfigResource(ConfigResource.Type.TOPIC, OPERATED)
        config = admin.describe_configs([resource])[resource].result(CALL_S)
        for key, values in operator.unsure.items():
            found = config[key]
            assert (operator.DEFAULT if found.is_default else found.value) in values, f"{key} is {found.value}"

    def _judge_latest(self) -> None:
        """In a compacted topic, what is there is where it was acked, and what is not has a later record of its key."""
        reads = read_topic(self.broker.bootstrap, LATEST, 60)
        log = {(read.partition, read.offset): read.value for read in reads}
        last = {(read.partition, read.key): read.offset for read in reads}
        notes = self.latest.notes
        assert notes.violations == []
        for (partition, offset), value in notes.values.items():
            assert log.get((partition, offset), value) == value
            key = f"key-{int(value.rpartition(b'-')[2]) % KEYS}".encode()
            assert (partition, offset) in log or last[partition, key] > offset, f"{value!r} of {key!r} is lost"
        assert not self._edge or len(log) < len(notes.values), "compaction removed nothing meanwhile"
        _check_order(log)


def prove_ledger(broker: EdgeBroker) -> None:
    """Let the broker's own tool account for every offset: there, or written down."""
    command = [console_script("edge-broker"), "ledger", "--data-dir", broker.data_dir, "--prove"]
    proof = subprocess.run(command, capture_output=True, text=True, check=False, timeout=CALL_S)
    assert proof.returncode == 0, proof.stdout + proof.stderr


def _end(consumer: Consumer, partition: int) -> tuple[int] | None:
    """The high watermark; None while the partition is offline, which it may be for a moment after a disk failed."""
    try:
        return (consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=CALL_S)[1],)
    except KafkaException as refused:
        if refused.args[0].code() not in AWAY:
            raise
        return None


def _check_order(log: Mapping[Place, bytes | None]) -> None:
    numbers: dict[tuple[int, str], list[int]] = defaultdict(list)
    for partition, offset in sorted(log):
        name, _, number = (log[partition, offset] or b"").decode().rpartition("-")
        numbers[partition, name].append(int(number))
    for (partition, name), found in numbers.items():
        assert found == sorted(found), f"{name} is out of order in partition {partition}"
