"""Clients that work on while brokers of a cluster are taken away, and note what they were promised and shown.

| client | library | what it is after |
|---|---|---|
| writers | librdkafka, idempotent, acks=all | each record is answered in the end, through all faults |
| hasty writers | raw, idempotent, acks=1; and acks=all | each record is sent once, to whoever said that it leads |
| readers | raw, one for each broker | what this very broker shows, whoever leads: also one that was left behind |
| group | librdkafka, two members | commits |
| watcher | librdkafka | what the group's coordinator tells as committed |

Must never come in: faults, judgement (tests/support/cluster_history.py).
"""

from __future__ import annotations

import itertools
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from random import Random

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException, Message, Producer, TopicPartition

from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import FETCH, INIT_PRODUCER_ID, METADATA
from edge_broker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from edge_broker.protocol.messages.init_producer_id import InitProducerIdRequest
from edge_broker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from edge_broker.protocol.record_batch import build_batch, read_header, records_of
from tests.fault.workload import QUICK, Worker
from tests.support.cluster_history import ALL, Acked, AckedCommit, FetchedCommit, History, Shown
from tests.support.raw_client import RawClient, connected

PARTITIONS = 4
PAUSE_S = 0.02
RAW_S = 4.0  # then a broker counts as silent
PENDING_MAX = 200
AGAIN = 10  # records that a reader looks at once more
NEVER_MS = 600_000


class Noted:
    """The history that all clients write, and the one count that orders it."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.history = History()
        self.lock = threading.Lock()
        self._count = itertools.count(1)

    def now(self) -> int:
        """A number behind all that were given out before."""
        return next(self._count)


class ClusterWorker(Worker):
    """A client of the whole cluster."""

    def __init__(self, name: str, brokers: Sequence[str], noted: Noted) -> None:
        super().__init__(name, ",".join(brokers), noted.topic)
        self.brokers = brokers
        self.noted = noted
        self.count = 0
        self.last = ""  # what it did last, for people

    @property
    def done(self) -> int:
        """How much it has done so far."""
        return self.count


class PatientWriter(ClusterWorker):
    """An idempotent producer with acks=all; one that gives up is told of, and another goes on."""

    def work(self) -> None:
        numbers = itertools.count(1)
        while not self.stopping.is_set():
            self._live(numbers)

    def _live(self, numbers: Iterator[int]) -> None:
        settings = {"enable.idempotence": True, "linger.ms": 2, "message.timeout.ms": NEVER_MS}
        producer = Producer({"bootstrap.servers": self.bootstrap, **settings, **QUICK})
        for number in numbers:
            value = f"{self.name}-{number}"
            try:
                producer.produce(self.topic, value.encode(), partition=number % PARTITIONS, on_delivery=self._answered)
            except KafkaException as error:
                self.noted.history.given_up.append(f"{value}: {error}")
                break
            producer.poll(0)
            self.stopping.wait(PAUSE_S)
            while len(producer) > PENDING_MAX and not self.stopping.is_set():
                producer.poll(0.05)
            if self.stopping.is_set():
                break
        left = producer.flush(240)
        assert left == 0, f"{self.name}: {left} records were never answered"

    def _answered(self, error: object, message: Message) -> None:
        value = (message.value() or b"").decode()
        if error is not None:
            self.noted.history.given_up.append(f"{value}: {error}")
            return
        self.count += 1
        place = self.topic, message.partition()
        self.noted.history.acked.append(Acked(place, message.offset(), value))


class LeadersView(ClusterWorker, ABC):
    """A client that asks one broker what it leads, and speaks to it alone until something fails."""

    def epochs(self, client: RawClient, broker: int) -> dict[int, int]:
        """The partitions that this broker says to lead itself, and in which leader epochs."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=self.topic)], allow_auto_topic_creation=False)
        answer = client.ask(METADATA, request)
        found = (each for topic in answer.topics for each in topic.partitions)
        return {each.partition_index: each.leader_epoch for each in found if each.leader_id == broker}

    @abstractmethod
    def visit(self, broker: int, client: RawClient) -> None:
        """Work with a broker until it refuses."""

    @abstractmethod
    def next_broker(self) -> int:
        """Who is asked next."""

    def work(self) -> None:
        while not self.stopping.is_set():
            broker = self.next_broker()
            try:
                with connected(self.brokers[broker - 1], RAW_S) as client:
                    self.visit(broker, client)
            except OSError:
                pass  # it is away, or silent: what it did not answer is promised to nobody
            self.stopping.wait(PAUSE_S)


class HastyWriter(LeadersView):
    """An idempotent producer that sends each record once, and takes a new producer id when one was not answered."""

    def __init__(self, name: str, brokers: Sequence[str], noted: Noted, acks: int, chance: Random) -> None:
        super().__init__(name, brokers, noted)
        self._acks = acks
        self._chance = Random(chance.random())
        self._number = 0

    def next_broker(self) -> int:
        """Any."""
        return self._chance.randint(1, len(self.brokers))

    def visit(self, broker: int, client: RawClient) -> None:
        """Produce there, to whatever it leads."""
        producer = client.ask(INIT_PRODUCER_ID, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1))
        if producer.error_code != ErrorCode.NONE:
            return
        sequences = [0] * PARTITIONS
        before = self.epochs(client, broker)
        while before and not self.stopping.is_set():
            partition = self._chance.choice(sorted(before))
            self._number += 1
            value = f"{self.name}-{self._number}"
            batch = build_batch(
                [(None, value.encode())],
                timestamp_ms=int(time.time() * 1000),
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                base_sequence=sequences[partition],
            )
            answer = client.produce(self.topic, batch, acks=self._acks, partition=partition)
            if answer.error_code != ErrorCode.NONE:
                return
            sequences[partition] += 1
            after = self.epochs(client, broker)
            last = after.get(partition, 1 << 31)  # it does not lead any more
            acked = Acked((self.topic, partition), answer.base_offset, value, self._acks, (before[partition], last))
            self.noted.history.acked.append(acked)
            self.count += 1
            before = after
            self.stopping.wait(PAUSE_S)


class RawReader(LeadersView):
    """Reads all that one broker shows as a leader, and looks at the last records again and again."""

    def __init__(self, name: str, brokers: Sequence[str], noted: Noted, broker: int) -> None:
        super().__init__(name, brokers, noted)
        self._broker = broker
        self._positions = [0] * PARTITIONS

    def next_broker(self) -> int:
        """The one."""
        return self._broker

    def visit(self, broker: int, client: RawClient) -> None:
        """Read until it is gone."""
        while not self.stopping.is_set():
            self._read(client)
            self.stopping.wait(4 * PAUSE_S)

    def _read(self, client: RawClient) -> None:
        wanted = [
            FetchPartition(partition=partition, fetch_offset=max(0, position - AGAIN), partition_max_bytes=1 << 18)
            for partition, position in enumerate(self._positions)
        ]
        request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=self.topic, partitions=wanted)])
        for found in (each for topic in client.ask(FETCH, request).responses for each in topic.partitions):
            records = memoryview(found.records or b"")
            while len(records) >= 61 and len(records) >= read_header(records).size:
                size = read_header(records).size
                for record in records_of(records[:size]):
                    self._shown(found.partition_index, record.offset, record.value)
                records = records[size:]

    def _shown(self, partition: int, offset: int, value: bytes | None) -> None:
        if offset >= max(0, self._positions[partition] - AGAIN):
            shown = Shown(self.name, (self.topic, partition), offset, (value or b"").decode())
            self.noted.history.shown.append(shown)
            self._positions[partition] = max(self._positions[partition], offset + 1)
            self.count += 1


class Member(ClusterWorker):
    """A member of the group, which commits what it has read, one commit at a time.

    It polls meanwhile: librdkafka waits for ever in a commit that blocks while its coordinator leaves the cluster.
    """

    def __init__(self, name: str, brokers: Sequence[str], noted: Noted, group: str) -> None:
        super().__init__(name, brokers, noted)
        self.group = group
        self._begun_at = 0  # of the commit that is under way; 0: none is

    def work(self) -> None:
        settings = {"group.id": self.group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        settings["on_commit"] = self._committed
        timing = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500, "fetch.wait.max.ms": 100}
        consumer = Consumer({"bootstrap.servers": self.bootstrap, **settings, **timing, **QUICK})
        consumer.subscribe([self.topic])
        while not self.stopping.is_set():
            found = consumer.consume(200, timeout=0.2)
            messages = [message for message in found if not message.error()]
            self.last = f"has {[place.partition for place in consumer.assignment()]}, " + (
                f"read {len(messages)}" if len(messages) == len(found) else f"was told {found[-1].error()}"
            )
            for message in messages:
                place = self.topic, message.partition()
                value = (message.value() or b"").decode()
                self.noted.history.shown.append(Shown(self.name, place, message.offset(), value))
            if messages and not self._begun_at:
                self._commit(consumer)
        consumer.close()

    def _commit(self, consumer: Consumer) -> None:
        self._begun_at = self.noted.now()
        try:
            consumer.commit(asynchronous=True)
        except KafkaException:  # the partitions are another member's since
            self._begun_at = 0

    def _committed(self, error: object, answered: Sequence[TopicPartition]) -> None:
        begun_at, at, self._begun_at = self._begun_at, self.noted.now(), 0
        if error is not None:
            return  # nothing was promised
        for place in answered:
            if place.error is None and place.offset != OFFSET_INVALID:
                self.count += 1
                where = self.topic, place.partition
                self.noted.history.committed.append(AckedCommit(begun_at, at, self.group, where, place.offset))


class Watcher(ClusterWorker):
    """Asks what the group has committed."""

    def __init__(self, name: str, brokers: Sequence[str], noted: Noted, group: str) -> None:
        super().__init__(name, brokers, noted)
        self.group = group

    def work(self) -> None:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.group, **QUICK})
        while not self.stopping.is_set():
            self.look(consumer)
            self.stopping.wait(0.2)
        consumer.close()

    def look(self, consumer: Consumer) -> None:
        """Once."""
        places = [TopicPartition(self.topic, partition) for partition in range(PARTITIONS)]
        asked_at = self.noted.now()
        try:
            found = consumer.committed(places, timeout=10)
        except KafkaException:
            return
        for place in found:
            if place.error is None:
                self.count += 1
                where = self.topic, place.partition
                self.noted.history.found.append(FetchedCommit(asked_at, self.group, where, max(0, place.offset)))


def clients_of(brokers: Sequence[str], noted: Noted, chance: Random) -> list[ClusterWorker]:
    """All clients of a round."""
    group = f"group-{noted.topic}"
    name = noted.topic
    return [
        *(PatientWriter(f"{name}-patient-{number}", brokers, noted) for number in (1, 2)),
        HastyWriter(f"{name}-hasty", brokers, noted, 1, chance),
        HastyWriter(f"{name}-hasty-all", brokers, noted, ALL, chance),
        *(RawReader(f"{name}-reader-{number}", brokers, noted, number) for number in (1, 2, 3)),
        *(Member(f"{name}-member-{number}", brokers, noted, group) for number in (1, 2)),
        Watcher(f"{name}-watcher", brokers, noted, group),
    ]
