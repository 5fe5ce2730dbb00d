"""Retention of a topic that nobody writes to any more, at Apache Kafka and at the edge broker: all of it goes."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.kafka_reading import create_topic
from tests.support.processes import ApacheKafka, EdgeBroker, wait_until
from tests.support.waiting import CALL_S

CHECK = {"log.retention.check.interval.ms": 500}
KAFKA = {"log.initial.task.delay.ms": 500, "log.segment.delete.delay.ms": 1000}
RECORDS = 5


def run(broker: ApacheKafka | EdgeBroker) -> None:
    """Write five records, then nothing, and wait until the topic begins where it ends."""
    create_topic(broker.bootstrap, "idle", config={"retention.ms": "1000"})
    create_topic(broker.bootstrap, "kept", config={"retention.ms": "3600000"})
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
    for _ in range(RECORDS):
        for topic in ("idle", "kept"):
            producer.produce(topic, b"reading")
    assert producer.flush(CALL_S) == 0
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "bounds"})
    try:
        wait_until(
            lambda: reader.get_watermark_offsets(TopicPartition("idle", 0), CALL_S) == (RECORDS, RECORDS),
            60,
            "the idle topic's only segment is deleted",
        )
        assert reader.get_watermark_offsets(TopicPartition("kept", 0), CALL_S) == (0, RECORDS)
    finally:
        reader.close()


def test_apache_kafka_deletes_the_segment_that_is_written_to(tmp_path: Path) -> None:
    with ApacheKafka(tmp_path, settings={**CHECK, **KAFKA}) as broker:
        run(broker)


def test_so_does_the_edge_broker(tmp_path: Path) -> None:
    with EdgeBroker(tmp_path, settings=CHECK) as broker:
        run(broker)
