"""A believed clock jumps ten years ahead: Apache Kafka deletes a topic whole, the edge broker nothing of it.

Producers have the right time. libfaketime shows the brokers theirs; each checks retention twice a second.
"""

from __future__ import annotations

import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import runtimes
from tests.support.processes import ApacheKafka, EdgeBroker, wait_until
from tests.support.waiting import CALL_S

TEN_YEARS = "+3650d"
RECORDS = 10
CONFIGS = {"kept": {"retention.ms": "600000", "segment.ms": "1"}, "short": {"retention.ms": "1", "segment.ms": "1"}}


class Site:
    """A broker and the clock that it is shown."""

    def __init__(self, broker: ApacheKafka | EdgeBroker, directory: Path) -> None:
        self.broker, self.clock = broker, directory / "clock"
        self.shift("+0")
        broker.environment |= {
            "LD_PRELOAD": str(runtimes.libfaketime()),
            "FAKETIME_TIMESTAMP_FILE": str(self.clock),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }

    def shift(self, shift: str) -> None:
        new = self.clock.with_suffix(".new")
        new.write_text(f"{shift}\n")
        new.rename(self.clock)

    def run(self) -> tuple[int, int]:
        """Step the clock between two times ten records; return first and end offset once retention ran after both."""
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        for made in admin.create_topics([NewTopic(name, 1, 1, config=each) for name, each in CONFIGS.items()]).values():
            made.result(CALL_S)
        asking = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": "watermarks"})

        def bounds(topic: str) -> tuple[int, int]:
            first, end = asking.get_watermark_offsets(TopicPartition(topic, 0), timeout=CALL_S)
            return first, end

        try:
            self.send()
            self.shift(TEN_YEARS)
            self.send()
            marked_s = time.monotonic()
            wait_until(lambda: bounds("short")[0] >= RECORDS, 60, "retention ran after the step")
            wait_until(
                lambda: bounds("kept")[0] == 2 * RECORDS or time.monotonic() - marked_s > 5.0, 10, "or ten checks of it"
            )
            return bounds("kept")
        finally:
            asking.close()

    def send(self) -> None:
        errors: list[object] = []
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "acks": "all"})
        for _ in range(RECORDS):
            for topic in CONFIGS:
                producer.produce(topic, bytes(100), on_delivery=lambda error, _: errors.append(error))
            producer.flush(CALL_S)
        assert errors == [None] * (RECORDS * len(CONFIGS))


def test_apache_kafka_deletes_what_is_young_at_the_next_check(tmp_path: Path) -> None:
    settings = {"log.retention.check.interval.ms": 500, "log.initial.task.delay.ms": 500}
    site = Site(ApacheKafka(tmp_path, settings=settings), tmp_path)
    with site.broker:
        assert site.run() == (2 * RECORDS, 2 * RECORDS)


def test_the_edge_broker_deletes_nothing_young(tmp_path: Path) -> None:
    settings = {"log.retention.check.interval.ms": 500, "edge.clock.trusted": "true"}
    site = Site(EdgeBroker(tmp_path, settings=settings), tmp_path)
    with site.broker:
        assert site.run() == (0, 2 * RECORDS)
