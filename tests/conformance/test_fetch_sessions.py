"""Consumers that go on with fetch sessions (Java, kafka-python) and those that do not, over many partitions."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer

from tests.support.entries import aiokafka, kafka_python, librdkafka
from tests.support.java_tools import CONSUMER, tool_command
from tests.support.kafka_reading import create_topic
from tests.support.processes import JVM_STOP_STATUSES, EdgeBroker, Process, wait_until

PARTITIONS, ROUNDS = 120, 4
READ_S = 60
Take = Callable[[], list[str]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EdgeBroker]:
    with EdgeBroker(tmp_path_factory.mktemp("sessions"), settings={"group.initial.rebalance.delay.ms": 0}) as process:
        yield process


@pytest.fixture
def topic(broker: EdgeBroker, request: pytest.FixtureRequest) -> str:
    name = f"many-{request.node.callspec.id}"
    create_topic(broker.bootstrap, name, PARTITIONS)
    return name


def figure(broker: EdgeBroker, name: str) -> int:
    with urllib.request.urlopen(broker.metrics_url) as answer:
        found = re.search(rf"^edge_broker_{name} (\d+)", answer.read().decode(), re.MULTILINE)
    assert found is not None
    return int(found[1])


def write(broker: EdgeBroker, topic: str, number: int) -> list[str]:
    """Some partitions get records, another few in each round, and one in all of them."""
    producer = Producer({**librdkafka(broker.bootstrap), "acks": "all"})
    values = []
    for partition in (0, *range(number + 1, PARTITIONS, 7)):
        for _ in range(3):
            values.append(f"{partition}:{number}:{len(values)}")
            producer.produce(topic, values[-1], partition=partition)
    assert producer.flush(READ_S) == 0
    return values


@contextmanager
def java(broker: EdgeBroker, topic: str, directory: Path) -> Iterator[Take]:
    options = ("--topic", topic, "--from-beginning", "--consumer-property", "metadata.max.age.ms=5000")
    command = tool_command(CONSUMER, broker.bootstrap, *options)
    with Process("consumer", command, directory, stop_statuses=JVM_STOP_STATUSES) as process:
        yield lambda: [line for line in process.output().splitlines() if re.fullmatch(r"\d+:\d+:\d+", line)]


@contextmanager
def of_kafka_python(broker: EdgeBroker, topic: str, _: Path) -> Iterator[Take]:
    taken: list[str] = []
    consumer = KafkaConsumer(
        topic,
        **kafka_python(broker.bootstrap),
        group_id=None,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=100,
        value_deserializer=bytes.decode,
    )

    def take() -> list[str]:
        for records in consumer.poll(timeout_ms=500).values():
            taken.extend(record.value for record in records)
        return taken

    with closing(consumer):
        yield take


@contextmanager
def of_librdkafka(broker: EdgeBroker, topic: str, _: Path) -> Iterator[Take]:
    taken: list[str] = []
    consumer = Consumer({**librdkafka(broker.bootstrap), "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])

    def take() -> list[str]:
        for message in consumer.consume(1000, 0.5):
            assert message.error() is None, message.error()
            taken.append((message.value() or b"").decode())
        return taken

    with closing(consumer):
        yield take


@contextmanager
def of_aiokafka(broker: EdgeBroker, topic: str, _: Path) -> Iterator[Take]:
    taken: list[str] = []
    with asyncio.Runner() as runner:

        async def start() -> AIOKafkaConsumer:
            consumer = AIOKafkaConsumer(topic, **aiokafka(broker.bootstrap), auto_offset_reset="earliest")
            await consumer.start()
            return consumer

        consumer = runner.run(start())

        def take() -> list[str]:
            for records in runner.run(consumer.getmany(timeout_ms=500)).values():
                taken.extend(record.value.decode() for record in records)
            return taken

        try:
            yield take
        finally:
            runner.run(consumer.stop())


READERS = {"java": java, "kafka-python": of_kafka_python, "librdkafka": of_librdkafka, "aiokafka": of_aiokafka}
WITH_SESSIONS = ("java", "kafka-python")


def enough(take: Take, count: int) -> bool:
    return len(take()) >= count


@pytest.mark.parametrize("name", READERS)
def test_each_record_of_many_partitions_comes_once_and_in_order(
    broker: EdgeBroker, topic: str, tmp_path: Path, name: str
) -> None:
    written = write(broker, topic, 0)
    with READERS[name](broker, topic, tmp_path) as take:
        for number in range(1, ROUNDS):
            wait_until(partial(enough, take, len(written)), READ_S, f"records of round {number}", poll_s=0.1)
            by_partition: dict[str, list[str]] = defaultdict(list)
            for value in take():
                by_partition[value.partition(":")[0]].append(value)
            for partition, values in by_partition.items():
                assert values == [each for each in written if each.startswith(f"{partition}:")]
            written += write(broker, topic, number)
        if name in WITH_SESSIONS:
            assert figure(broker, "incremental_fetch_partitions_cached") >= PARTITIONS
    assert figure(broker, "handler_failures_total") == 0
