"""Writes to a cluster whose brokers stop and start, and reads everything back."""

from __future__ import annotations

from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.support.board_cluster import BoardCluster
from tests.support.waiting import CALL_S, wait_until

WAIT_S = 60


class AckedWrites:
    """What a producer was answered; it goes on until all is."""

    def __init__(self, cluster: BoardCluster, topic: str, **settings: str | int | bool) -> None:
        self.topic = topic
        self.offsets: dict[bytes, tuple[int, int]] = {}
        self.errors: list[KafkaError] = []
        self.producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 5, "message.timeout.ms": 60_000}
            | {name.replace("_", "."): value for name, value in settings.items()}
        )

    def write(self, count: int, tag: str) -> None:
        """So many records, without waiting for answers."""
        for number in range(count):
            value = f"{tag}-{number}".encode()
            self.producer.produce(self.topic, value, key=value, on_delivery=self._told)
            self.producer.poll(0)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
            return
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert value is not None
        assert partition is not None
        assert offset is not None
        self.offsets[value] = (partition, offset)

    def end(self) -> dict[bytes, tuple[int, int]]:
        """All that was answered; nothing failed."""
        assert self.producer.flush(WAIT_S) == 0
        assert self.errors == []
        return self.offsets


def read_all(cluster: BoardCluster, topic: str, partitions: int = 3) -> list[tuple[bytes, tuple[int, int]]]:
    """What a consumer reads, from beginning to end."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "reader", "enable.auto.commit": False})
    try:
        found: list[tuple[bytes, tuple[int, int]]] = []
        for partition in range(partitions):
            where = TopicPartition(topic, partition, 0)
            found_end = wait_until(partial(end_of, consumer, where), WAIT_S, f"the end of {where} is told")
            assert found_end is not None
            (end,) = found_end
            consumer.assign([where])
            position = 0
            while position < end:
                message = consumer.poll(CALL_S)
                assert message is not None, f"{topic}-{partition} ends at {position} of {end}"
                assert message.error() is None
                value, offset = message.value(), message.offset()
                assert value is not None
                assert offset is not None
                found.append((value, (partition, offset)))
                position = offset + 1
        return found
    finally:
        consumer.close()


def end_of(consumer: Consumer, where: TopicPartition) -> tuple[int] | None:
    """Where a partition ends; None: its new leader cannot say so yet (KIP-207)."""
    try:
        return (consumer.get_watermark_offsets(where, timeout=CALL_S)[1],)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.OFFSET_NOT_AVAILABLE:
            raise
        return None


def assert_each_once(cluster: BoardCluster, topic: str, written: dict[bytes, tuple[int, int]]) -> None:
    """All that was answered is there, once, at the offset that was answered, and nothing else is."""
    found = read_all(cluster, topic)
    assert len(found) == len(dict(found)), "a record is there twice"
    assert dict(found) == written
