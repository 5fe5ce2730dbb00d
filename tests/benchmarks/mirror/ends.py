"""What goes in at the source and comes out at the target, by librdkafka, and the link alone by a bare socket.

Every function here is to be called in a thread of the right host (`Host.call`), where the broker is near: none of its
bytes cross the link, but those of the bare socket. Must never come in: a mirror, what is measured.
"""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.benchmarks.mirror.data import cycle, sequence_of
from tests.support.linked_hosts import CENTER_ADDRESS
from tests.support.waiting import CALL_S, Deadline

LINGER_MS = 5
BATCHES = {"linger.ms": LINGER_MS, "batch.size": 65_536}  # as the gateway sends them
QUIET = {"log_level": 3}  # topics come and go, of which librdkafka says much
BARE_PORT = 5000
BARE_BYTES = 65_536
# What a broker says of a topic that it has just made: the ends are those of a moment before.
NEW_TOPIC = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_LEADER_EPOCH,  # another broker, or its controller, has told of it first
)
Count = Callable[[], int]


def fill(bootstrap: str, topic: str, data: str, records: int, partitions: int) -> None:
    """Produce a backlog, value after value to partition after partition."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "1", **BATCHES, **QUIET, "queue.buffering.max.kbytes": 131_072}
    )
    values = itertools.cycle(cycle(data))
    for number in range(records):
        value = next(values)
        while True:
            try:
                producer.produce(topic, value, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(CALL_S):
        raise TimeoutError(f"{topic} could not be filled within {CALL_S:g} s")


class Ends:
    """The ends of a topic's partitions, asked again and again; all 0 while the topic is not there."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
        self._topic = topic
        self._asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)}
        self._is_there = False
        self._total = 0

    def total(self) -> int:
        """Offsets in all partitions together."""
        if not self._is_there:
            found = self._admin.list_topics(timeout=CALL_S).topics
            self._is_there = self._topic in found and len(found[self._topic].partitions) >= len(self._asked)
        if not self._is_there:
            return 0
        answers = self._admin.list_offsets(self._asked, request_timeout=CALL_S)
        try:
            self._total = sum(answer.result(CALL_S).offset for answer in answers.values())
        except KafkaException as error:
            if error.args[0].code() not in NEW_TOPIC:
                raise
        return self._total


class Trickle:
    """Readings at a steady pace from a thread; `sent_at` and `acked` go by their numbers."""

    def __init__(self, bootstrap: str, topic: str, data: str, rate: float, partitions: int, linger_ms: int = 0) -> None:
        """So many records a second, to one partition after the other, each its own batch but for `linger_ms`."""
        self._bootstrap, self._topic, self._rate, self._partitions = bootstrap, topic, rate, partitions
        self._linger_ms = linger_ms
        self._values = cycle(data)
        self.sent_at: list[float] = []
        self.acked: list[int] = []
        self._stop = threading.Event()

    def run(self) -> None:
        """Produce until stop(); raises TimeoutError when the source does not take it."""
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "acks": "all", "linger.ms": self._linger_ms, **QUIET}
        )
        began = time.monotonic()
        while not self._stop.is_set():
            due = began + len(self.sent_at) / self._rate
            producer.poll(max(0.0, min(0.2, due - time.monotonic())))
            while not self._stop.is_set() and began + len(self.sent_at) / self._rate <= time.monotonic():
                self._send(producer)
        if producer.flush(CALL_S):
            raise TimeoutError(f"{self._topic} took only {len(self.acked)} of {len(self.sent_at)} records")

    def _send(self, producer: Producer) -> None:
        number = len(self.sent_at)
        value, partition = self._values[number % len(self._values)], number % self._partitions
        self.sent_at.append(time.monotonic())
        producer.produce(self._topic, value, partition=partition, on_delivery=partial(self._answered, number))
        producer.poll(0)

    def _answered(self, number: int, error: KafkaError | None, _: object) -> None:
        if error is None:
            self.acked.append(number)

    def stop(self) -> None:
        """Let run() return."""
        self._stop.set()


class Arrivals:
    """When each reading of a trickle could first be read at the target; and how often each was."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._bootstrap, self._topic, self._partitions = bootstrap, topic, partitions
        self.read_at: dict[int, float] = {}
        self.times: dict[int, int] = {}
        self.newest = -1
        self._stop = threading.Event()

    def run(self) -> None:
        """Read all partitions from their start until stop()."""
        settings = {"bootstrap.servers": self._bootstrap, "group.id": "-", "enable.auto.commit": False, **QUIET}
        more = {"auto.offset.reset": "earliest", "topic.metadata.refresh.interval.ms": 200}
        consumer = Consumer({**settings, **more, "allow.auto.create.topics": False})
        try:
            self._when_there(consumer)
            consumer.assign([TopicPartition(self._topic, number, 0) for number in range(self._partitions)])
            while not self._stop.is_set():
                for message in consumer.consume(500, timeout=0.05):
                    if message.error() is None:
                        self._take(message.value(), time.monotonic())
        finally:
            consumer.close()

    def _when_there(self, consumer: Consumer) -> None:
        while not self._stop.is_set():
            found = consumer.list_topics(timeout=CALL_S).topics
            if self._topic in found and len(found[self._topic].partitions) >= self._partitions:
                return
            self._stop.wait(0.02)

    def _take(self, value: bytes, now: float) -> None:
        number = sequence_of(value)
        self.read_at.setdefault(number, now)
        self.times[number] = self.times.get(number, 0) + 1
        self.newest = max(self.newest, number)

    def stop(self) -> None:
        """Let run() return."""
        self._stop.set()


def take_bare() -> None:
    """Read what one TCP connection brings until its end."""
    with socket.create_server((CENTER_ADDRESS, BARE_PORT)) as server:
        server.settimeout(CALL_S)
        connection, _ = server.accept()
        with connection:
            connection.settimeout(CALL_S)
            with suppress(ConnectionResetError):  # how send_bare() ends
                while connection.recv(1 << 20):
                    continue


def send_bare(seconds: float) -> None:
    """Send as much as one plain TCP connection carries, for so long."""
    with _connected() as connection:
        deadline = time.monotonic() + seconds
        content = bytes(BARE_BYTES)
        while time.monotonic() < deadline:
            connection.send(content)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # what waits is not wanted


def _connected() -> socket.socket:
    deadline = Deadline(10)
    while True:
        try:
            return socket.create_connection((CENTER_ADDRESS, BARE_PORT), timeout=CALL_S)
        except ConnectionRefusedError:  # take_bare() is still about to listen
            deadline.check("the bare connection", "refused")
            time.sleep(0.05)


def delete(bootstrap: str, topics: list[str]) -> None:
    """Delete those of the topics that are there."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    there = admin.list_topics(timeout=CALL_S).topics
    deadline = Deadline(30)
    if known := [topic for topic in topics if topic in there]:
        for done in admin.delete_topics(known).values():
            done.result(deadline.left_s)
