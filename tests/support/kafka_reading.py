"""What a broker really holds, read by librdkafka without a group: the impartial second look of many tests."""

from __future__ import annotations

import time
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

CALL_S = 15.0


@dataclass(frozen=True, slots=True)
class Read:
    """One record as a consumer sees it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


def create_topic(bootstrap: str, name: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
    """Create a topic and return when its leader is known; raises what the broker answered."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config or {})
    admin.create_topics([new], request_timeout=CALL_S)[name].result(CALL_S)
    end = time.monotonic() + CALL_S
    while not _has_leaders(admin, name, partitions):
        assert time.monotonic() < end, f"{name} has no leader after {CALL_S} s"
        time.sleep(0.02)


def _has_leaders(admin: AdminClient, name: str, partitions: int) -> bool:
    found = admin.list_topics(name, timeout=CALL_S).topics[name].partitions
    return len(found) == partitions and all(partition.leader >= 0 for partition in found.values())


def read_topic(bootstrap: str, topic: str, deadline_s: float = 30.0) -> list[Read]:
    """Read every record of a topic that is there now, partition by partition in order of offsets."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "-", "enable.auto.commit": False})
    try:
        return _read_to_the_end(consumer, topic, time.monotonic() + deadline_s)
    finally:
        consumer.close()


def _read_to_the_end(consumer: Consumer, topic: str, end: float) -> list[Read]:
    partitions = consumer.list_topics(topic, timeout=CALL_S).topics[topic].partitions
    ends: dict[int, int] = {}
    starts = []
    for partition in partitions:
        low, ends[partition] = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=CALL_S)
        starts.append(TopicPartition(topic, partition, low))
    consumer.assign(starts)
    reads: list[Read] = []
    while any(place.offset < ends[place.partition] for place in _places(consumer, starts)):
        assert time.monotonic() < end, f"{topic}: read {len(reads)} records, not yet at the ends {ends}"
        for message in consumer.consume(1000, timeout=0.2):
            if message.error():
                raise KafkaException(message.error())
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            reads.append(Read(partition, offset, message.key(), message.value()))
    return sorted(reads, key=lambda read: (read.partition, read.offset))


def _places(consumer: Consumer, starts: list[TopicPartition]) -> list[TopicPartition]:
    """Return the position of each partition; where nothing was read yet, its start."""
    known = {start.partition: start for start in starts}
    places = consumer.position([TopicPartition(start.topic, start.partition) for start in starts])
    return [place if place.offset >= 0 else known[place.partition] for place in places]
