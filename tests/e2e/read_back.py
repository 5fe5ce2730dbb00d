"""What a Kafka consumer sees: topics read whole for the account, and a tail that notes when records become readable.

Only Kafka clients live here; what the numbers mean is in accounting.py. librdkafka is used as it is, so each reading
is a test by an unmodified client.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.e2e.accounting import Stored
from tests.support.waiting import Deadline

CALL_S = 10.0
LOOK_S = 1.0
LOG_SEQ = re.compile(rb"\bseq=(\d+)\b")


class ReadBackError(RuntimeError):
    """A broker could not be read to its end in time."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record as a consumer got it; an absent key or value is empty."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes

    @classmethod
    def of(cls, message: Message) -> Record:
        """Take over what the client returned."""
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None  # only errors lack these
        assert partition is not None
        assert offset is not None
        return cls(topic, partition, offset, message.timestamp()[1], message.key() or b"", message.value() or b"")


@dataclass(frozen=True, slots=True)
class Readable:
    """One record, the first time a consumer at central got it."""

    identity: str
    timestamp_ms: int
    seen_ms: int


def reading_identity(record: Record) -> str:
    """Device and sequence number, as the fleet's journal has them."""
    fields = json.loads(record.value)
    return f"{fields['device']}|{fields['seq']}"


def log_identity(record: Record) -> str:
    """The line's running number, as the log writer's journal has it."""
    found = LOG_SEQ.search(record.value)
    return f"line|{int(found[1])}" if found else content_identity(record)


def content_identity(record: Record) -> str:
    """A digest of key, value and timestamp: what a mirror must not change."""
    digest = hashlib.blake2b(digest_size=12)
    for part in (record.key, record.value, str(record.timestamp_ms).encode()):
        digest.update(b"%d:" % len(part) + part)
    return digest.hexdigest()


IDENTITIES: dict[str, Callable[[Record], str]] = {"readings": reading_identity, "logs": log_identity}


def identity(topic: str, record: Record) -> str:
    """What makes this record the same record wherever it is read; `topic` is its name on the edge."""
    return IDENTITIES.get(topic, content_identity)(record)


def stored(topic: str, records: Iterable[Record]) -> list[Stored]:
    """The records as the account wants them."""
    return [Stored(record.partition, record.offset, record.key.decode(), identity(topic, record)) for record in records]


def _consumer(bootstrap: str, client_id: str, **more: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "group.id": client_id,  # asked for by librdkafka; nothing is committed
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "allow.auto.create.topics": False,
            "isolation.level": "read_committed",
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,  # a cut link is no news here
            **more,
        }
    )


def partitions(consumer: Consumer, topic: str, timeout_s: float = CALL_S) -> list[int]:
    """The topic's partitions, none if it does not exist."""
    found = consumer.list_topics(topic, timeout=timeout_s).topics.get(topic)
    return [] if found is None or found.error is not None else sorted(found.partitions)


def committed(bootstrap: str, group: str, topics: Iterable[str]) -> dict[str, dict[int, int]]:
    """The group's committed offset per topic and partition; partitions without one are left out."""
    consumer = _consumer(bootstrap, "demo-offsets", **{"group.id": group})
    try:
        asked = [TopicPartition(topic, part) for topic in topics for part in partitions(consumer, topic)]
        found: dict[str, dict[int, int]] = {}
        for answer in consumer.committed(asked, timeout=CALL_S) if asked else []:
            if answer.error is None and answer.offset >= 0:
                found.setdefault(answer.topic, {})[answer.partition] = answer.offset
        return found
    finally:
        consumer.close()


def end_offsets(bootstrap: str, topics: Iterable[str]) -> dict[str, dict[int, int]]:
    """The offset after the last readable record per topic and partition; topics that do not exist are left out."""
    consumer = _consumer(bootstrap, "demo-offsets")
    try:
        return {
            topic: {
                part: consumer.get_watermark_offsets(TopicPartition(topic, part), timeout=CALL_S)[1] for part in parts
            }
            for topic in topics
            if (parts := partitions(consumer, topic))
        }
    finally:
        consumer.close()


def read_whole(bootstrap: str, topic: str, deadline_s: float = 60.0) -> list[Record]:
    """Every record of the topic from its start to its end of now; raises ReadBackError when that takes too long."""
    consumer = _consumer(bootstrap, "demo-read-back", **{"enable.partition.eof": True})
    try:
        open_partitions = set(partitions(consumer, topic))
        consumer.assign([TopicPartition(topic, part, 0) for part in sorted(open_partitions)])
        records: list[Record] = []
        deadline = Deadline(deadline_s)
        while open_partitions:
            if deadline.passed:
                error = deadline.error(f"the end of {topic} at {bootstrap}", f"{len(records)} records")
                raise ReadBackError(str(error))
            for message in consumer.consume(500, timeout=0.5):
                error = message.error()
                if error is None:
                    records.append(Record.of(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_partitions.discard(message.partition())
                else:
                    raise ReadBackError(f"{topic} at {bootstrap} could not be read: {error}")
        return records
    finally:
        consumer.close()


class Tail(threading.Thread):
    """Follows the topics at central from their start; `records` are first sights, `count` is of every copy."""

    def __init__(self, bootstrap: str, topics: dict[str, str]) -> None:
        """`topics` maps the name at central to the name on the edge."""
        super().__init__(name="tail", daemon=True)
        self._topics = topics
        self._consumer = _consumer(bootstrap, "demo-tail")
        self._ending = threading.Event()
        self._met: dict[str, set[str]] = {topic: set() for topic in topics.values()}
        self.records: dict[str, list[Readable]] = {topic: [] for topic in topics.values()}
        self.count = 0
        self.errors: list[str] = []

    def run(self) -> None:
        """Read until `end`."""
        assigned: dict[str, list[int]] = {}
        looked = 0.0
        while not self._ending.is_set():
            if len(assigned) < len(self._topics) and time.monotonic() - looked > 0.5:
                looked = time.monotonic()
                self._look_for_topics(assigned)
            if not assigned:
                self._ending.wait(0.2)
                continue
            for message in self._consumer.consume(200, timeout=0.1):
                self._note(message)
        self._consumer.close()

    def end(self) -> None:
        """Stop reading and wait for the thread."""
        self._ending.set()
        self.join()

    def _look_for_topics(self, assigned: dict[str, list[int]]) -> None:
        for topic in self._topics.keys() - assigned.keys():
            try:
                found = partitions(self._consumer, topic, LOOK_S)
            except KafkaException as error:
                self.errors.append(str(error))  # the link may be cut: it is asked again
                return
            if found:
                assigned[topic] = found
                self._consumer.incremental_assign([TopicPartition(topic, part, 0) for part in found])

    def _note(self, message: Message) -> None:
        if message.error() is not None:
            self.errors.append(str(message.error()))
            return
        self.count += 1
        record = Record.of(message)
        topic = self._topics[record.topic]
        name = identity(topic, record)
        if name not in self._met[topic]:
            self._met[topic].add(name)
            seen_ms = time.time_ns() // 1_000_000
            self.records[topic].append(Readable(name, record.timestamp_ms, seen_ms))
