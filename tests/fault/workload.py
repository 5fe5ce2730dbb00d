"""Clients that keep working while their broker is taken away, and that write down what they were promised.

A writer notes each acked record by its place (partition, offset); a reader notes what it saw and each commit that
was answered; an admin notes which topics there are. A contradiction (one place, two values) is noted as a violation at
once. Nothing here takes a broker away or judges.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterable
from concurrent.futures import Future
from random import Random

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic

from tests.support.waiting import CALL_S, Deadline

PARTITIONS = 3
BURST = 20
PAUSE_S = 0.01  # between bursts, so that clients leave the cores to a broker that starts
PENDING_MAX = 200
QUICK = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20, "log_level": 0}

Place = tuple[int, int]


class Silence:
    """Silences a library's loggers while at least one worker holds it; several threads may."""

    def __init__(self, library: str) -> None:
        self._logger = logging.getLogger(library)
        self._lock = threading.Lock()
        self._holders = 0
        self._level = logging.NOTSET

    def __enter__(self) -> None:
        with self._lock:
            if not self._holders:
                self._level = self._logger.level
                self._logger.setLevel(logging.CRITICAL)
            self._holders += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._holders -= 1
            if not self._holders:
                self._logger.setLevel(self._level)


_aiokafka_silent = Silence("aiokafka")  # each broker that a test stops would be a page of log lines


class Notes:
    """What one client was promised or shown: place to value, and every contradiction."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.values: dict[Place, bytes] = {}
        self.ends: dict[int, int] = {}  # per partition, the first offset behind them
        self.violations: list[str] = []

    def note(self, place: Place, value: bytes) -> None:
        """Remember a value at a place; a second, different one is a violation."""
        known = self.values.setdefault(place, value)
        self.ends[place[0]] = max(self.ends.get(place[0], 0), place[1] + 1)
        if known != value:
            self.violations.append(f"{self.name}: {place} was {known!r}, now {value!r}")


class Worker(threading.Thread):
    """A client in a thread of its own; `finish` lets it end in order and raises what it died of."""

    def __init__(self, name: str, bootstrap: str, topic: str) -> None:
        super().__init__(name=name, daemon=True)
        self.bootstrap, self.topic = bootstrap, topic
        self.notes = Notes(name)
        self.stopping = threading.Event()
        self._error: BaseException | None = None

    @property
    def done(self) -> int:
        """How much it has done so far."""
        return len(self.notes.values)

    def share(self, progress: int) -> int:
        """How much of it is enough for a round."""
        return progress

    def work(self) -> None:
        raise NotImplementedError

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:  # noqa: BLE001 - raised again in finish()
            self._error = error

    def check(self) -> None:
        """Raise what the worker died of."""
        if self._error is not None:
            raise AssertionError(f"{self.name} died") from self._error

    def finish(self, deadline_s: float = 60.0) -> None:
        self.stopping.set()
        deadline = Deadline(deadline_s)
        self.join(deadline.seconds)
        self.check()
        if self.is_alive():
            raise deadline.error(f"{self.name} ends", f"it is at work; done so far {self.done}")


class AioWorker(Worker):
    """One that works in an event loop of its own, with aiokafka."""

    def work(self) -> None:
        with _aiokafka_silent:
            asyncio.run(self._work())

    async def _work(self) -> None:
        raise NotImplementedError


class Writer(Worker):
    """An idempotent confluent-kafka producer with acks=all that lives through every kill; `keys`: how many, 0 none."""

    def __init__(self, name: str, bootstrap: str, topic: str, keys: int = 0) -> None:
        super().__init__(name, bootstrap, topic)
        self.keys = keys

    def work(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 2, **QUICK})
        number = 0
        while not self.stopping.is_set():
            for _ in range(BURST):
                number += 1
                key = f"key-{number % self.keys}".encode() if self.keys else None
                produce(producer, self.topic, number, self.notes, key)
            producer.poll(0)
            self.stopping.wait(PAUSE_S)
            while len(producer) > PENDING_MAX and not self.stopping.is_set():
                producer.poll(0.05)
        left = producer.flush(CALL_S)
        assert left == 0, f"{self.name}: {left} records were never answered"


def produce(producer: Producer, topic: str, number: int, notes: Notes, key: bytes | None) -> None:
    """Produce record `number` of a client; its ack is noted, a failed delivery is a violation."""
    value = f"{notes.name}-{number}".encode()

    def on_delivery(error: object, message: Message) -> None:
        if error is None:
            notes.note((message.partition(), message.offset()), value)
        else:
            notes.violations.append(f"{notes.name}: {value!r} was given up: {error}")

    producer.produce(topic, value, key, partition=number % PARTITIONS, on_delivery=on_delivery)


class AioWriter(AioWorker):
    """The same with aiokafka."""

    async def _work(self) -> None:
        settings = {"bootstrap_servers": self.bootstrap, "enable_idempotence": True, "retry_backoff_ms": 20}
        async with AIOKafkaProducer(**settings) as producer:
            number = 0
            while not self.stopping.is_set():
                waiting = {}
                for _ in range(BURST):
                    number += 1
                    value = f"{self.name}-{number}".encode()
                    waiting[value] = await producer.send(self.topic, value, partition=number % PARTITIONS)
                for value, done in waiting.items():
                    answer = await done
                    self.notes.note((answer.partition, answer.offset), value)


class Reader(Worker):
    """What both readers share: `commits` holds the highest answered commit per partition."""

    def __init__(self, name: str, bootstrap: str, topic: str) -> None:
        super().__init__(name, bootstrap, topic)
        self.group = name
        self.commits: dict[int, int] = {}
        self.refused_commits = 0

    def note_commit(self, offsets: Iterable[tuple[int, int]]) -> None:
        for partition, offset in offsets:
            self.commits[partition] = offset


class ConfluentReader(Reader):
    """A confluent-kafka consumer, alone in its group, that commits what it read."""

    def __init__(self, name: str, bootstrap: str, topic: str) -> None:
        super().__init__(name, bootstrap, topic)
        self.epochs: dict[Place, int] = {}

    def work(self) -> None:
        settings = {"group.id": self.group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        timing = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 300, "fetch.wait.max.ms": 100}
        consumer = Consumer({"bootstrap.servers": self.bootstrap, **settings, **timing, **QUICK})
        consumer.subscribe([self.topic])
        while not self.stopping.is_set():
            messages = [message for message in consumer.consume(200, timeout=0.1) if not message.error()]
            for message in messages:
                place = (message.partition(), message.offset())
                self.notes.note(place, message.value())
                self.epochs[place] = message.leader_epoch()
            if messages:
                self._commit(consumer)
        consumer.close()

    def _commit(self, consumer: Consumer) -> None:
        try:
            answered = consumer.commit(asynchronous=False)
        except KafkaException:
            self.refused_commits += 1  # the broker is away or has forgotten the member: nothing was promised
        else:
            good = [place for place in answered if place.error is None and place.offset != OFFSET_INVALID]
            self.note_commit((place.partition, place.offset) for place in good)


class AioReader(AioWorker, Reader):
    """The same with aiokafka."""

    async def _work(self) -> None:
        settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "retry_backoff_ms": 20}
        timing = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 300, "fetch_max_wait_ms": 100}
        bootstrap = {"bootstrap_servers": self.bootstrap, "group_id": self.group}
        async with AIOKafkaConsumer(self.topic, **bootstrap, **settings, **timing) as consumer:
            while not self.stopping.is_set():
                found = await consumer.getmany(timeout_ms=100, max_records=500)
                for records in found.values():
                    for record in records:
                        self.notes.note((record.partition, record.offset), record.value)
                if found:
                    await self._commit(consumer, {place: records[-1].offset + 1 for place, records in found.items()})

    async def _commit(self, consumer: AIOKafkaConsumer, offsets: dict[TopicPartition, int]) -> None:
        try:
            await consumer.commit(offsets)
        except AioKafkaError:
            self.refused_commits += 1  # as above
        else:
            self.note_commit((place.partition, offset) for place, offset in offsets.items())


class Newcomer(AioWorker):
    """A new idempotent aiokafka producer that writes two records to each partition and goes."""

    def work(self) -> None:
        super().work()
        assert len(self.notes.values) == 2 * PARTITIONS, f"two acks for one place: {self.notes.values}"

    async def _work(self) -> None:
        settings = {"bootstrap_servers": self.bootstrap, "enable_idempotence": True, "retry_backoff_ms": 20}
        async with AIOKafkaProducer(**settings) as producer:
            for number in range(2 * PARTITIONS):
                value = f"{self.name}-{number}".encode()
                answer = await producer.send_and_wait(self.topic, value, partition=number % PARTITIONS)
                self.notes.note((answer.partition, answer.offset), value)


class TopicChurn(Worker):
    """An admin that makes topics, fills a few small segments of each, and deletes them, name by name.

    `known` holds for each name a number that changes with each call, and whether the topic is there, None: not known.
    """

    NAMES = ("churn-0", "churn-1", "churn-2")
    REQUEST_S = 2.0

    def __init__(self, name: str, bootstrap: str) -> None:
        super().__init__(name, bootstrap, "")
        self.known: dict[str, tuple[int, bool | None]] = dict.fromkeys(self.NAMES, (0, None))
        self._answered = 0

    @property
    def done(self) -> int:
        """How many calls were answered."""
        return self._answered

    def share(self, progress: int) -> int:
        """One call is enough."""
        return min(1, progress)

    def work(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **QUICK})
        number = 0
        while not self.stopping.is_set():
            name = self.NAMES[number % len(self.NAMES)]
            number += 1
            if self.known[name][1] is False:
                new = NewTopic(name, 2, 1, config={"segment.bytes": "4096"})
                made = self._call(number, name, admin.create_topics([new], request_timeout=self.REQUEST_S)[name])
                self._fill(made, name)
            else:
                self._call(number, name, admin.delete_topics([name], request_timeout=self.REQUEST_S)[name])

    def _call(self, number: int, name: str, answer: Future[None]) -> bool:
        """Note what an answer promises; True for a topic that was made now."""
        wanted = self.known[name][1] is False
        self.known[name] = (number, None)
        try:
            answer.result(CALL_S)
        except KafkaException as failed:
            already = KafkaError.TOPIC_ALREADY_EXISTS if wanted else KafkaError.UNKNOWN_TOPIC_OR_PART
            if failed.args[0].code() != already:
                return False  # the broker is away: it was done, or not, or will be
        self.known[name] = (number, wanted)
        self._answered += 1
        return wanted

    def _fill(self, made: bool, name: str) -> None:
        if not made:
            return
        producer = Producer({"bootstrap.servers": self.bootstrap, "message.timeout.ms": 1000, **QUICK})
        for number in range(8):
            producer.produce(name, bytes(3000), partition=number % 2)
        producer.flush(self.REQUEST_S)


class Operator(Worker):
    """An admin that alters a topic, gives it partitions and deletes records, while others write to it.

    `partitions` and `starts` are what was answered last; a call without an answer was done, or not, or will be:
    `asked` holds how far deletions were asked for, `unsure` which values each key may have.
    """

    VALUES = ("100000", "200000", "300000")
    DEFAULT = "default"
    PARTITIONS_MAX = 6
    REQUEST_S = 2.0

    def __init__(self, name: str, bootstrap: str, topic: str, written: Notes, chance: Random) -> None:
        super().__init__(name, bootstrap, topic)
        self.unsure = {key: {self.DEFAULT} for key in ("segment.ms", "max.message.bytes")}
        self.partitions = PARTITIONS
        self.starts: dict[int, int] = {}
        self.asked: dict[int, int] = {}
        self._written = written
        self._chance = Random(chance.random())
        self._answered = 0

    @property
    def done(self) -> int:
        """How many calls were answered."""
        return self._answered

    def share(self, progress: int) -> int:
        """Three calls are enough."""
        return min(3, progress)

    def work(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **QUICK})
        calls = [self._delete_records, self._alter, self._alter, self._add]
        number = 0
        while not self.stopping.is_set():
            try:
                calls[number % len(calls)](admin)
                self._answered += 1
            except KafkaException:
                self.stopping.wait(PAUSE_S)  # the broker is away
            number += 1

    def _delete_records(self, admin: AdminClient) -> None:
        ends = dict(self._written.ends)
        if not ends:
            return
        partition = self._chance.choice(list(ends))
        offset = self._chance.randint(self.starts.get(partition, 0), ends[partition])
        self.asked[partition] = max(offset, self.asked.get(partition, 0))
        place = TopicPartition(self.topic, partition, offset)
        answer = admin.delete_records([place], request_timeout=self.REQUEST_S)[place].result(CALL_S)
        self.starts[partition] = max(answer.low_watermark, self.starts.get(partition, 0))

    def _alter(self, admin: AdminClient) -> None:
        key, value = self._chance.choice(list(self.unsure)), self._chance.choice(self.VALUES)
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.topic, incremental_configs=[entry])
        self.unsure[key].add(value)
        admin.incremental_alter_configs([resource], request_timeout=self.REQUEST_S)[resource].result(CALL_S)
        self.unsure[key] = {value}

    def _add(self, admin: AdminClient) -> None:
        if self.partitions < self.PARTITIONS_MAX:
            new = NewPartitions(self.topic, self.partitions + 1)
            try:
                admin.create_partitions([new], request_timeout=self.REQUEST_S)[self.topic].result(CALL_S)
            except KafkaException as failed:
                if failed.args[0].code() != KafkaError.INVALID_PARTITIONS:  # else it was done before the kill
                    raise
            self.partitions += 1
