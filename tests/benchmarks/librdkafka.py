"""A producer and a consumer of librdkafka, each in a process of its own, as fast as they go.

`python -m tests.benchmarks.librdkafka` reads a Task as JSON from standard input, as it may have a password, and prints
the figures as JSON. Must never come in: what is compared with what.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

TASK_S_MAX = 300
VALUES = 100
AT_ONCE = 10_000


class Task(NamedTuple):
    """What one process does: `kind` is produce or consume, `config` librdkafka's, `records` of `size` bytes."""

    kind: str
    config: dict[str, str]
    topic: str
    records: int
    size: int


def run(task: Task) -> dict[str, float]:
    """Do it in a process of its own: records/s, and that process's CPU in us for each record."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.librdkafka"],
        input=json.dumps(task._asdict()),
        capture_output=True,
        text=True,
        timeout=TASK_S_MAX,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{task.kind} of {task.topic} failed\n{done.stderr[-2000:]}")
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def produce(task: Task) -> dict[str, float]:
    """Send so many records; the time is from the first to the last answer, behind one that opened the connection."""
    failed: list[str] = []

    def told(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(str(error))

    producer = Producer({**task.config, "on_delivery": told, "queue.buffering.max.messages": 1_000_000})
    values = [os.urandom(task.size) for _ in range(VALUES)]
    _send(producer, task.topic, values[0])
    producer.flush()
    begin = time.perf_counter()
    for number in range(task.records):
        _send(producer, task.topic, values[number % VALUES])
        if number % 1000 == 0:
            producer.poll(0)
    left = producer.flush(TASK_S_MAX)
    seconds = time.perf_counter() - begin
    if left or failed:
        raise RuntimeError(f"{left or len(failed)} records were not taken: {failed[:1]}")
    return {"records_per_s": task.records / seconds}


def _send(producer: Producer, topic: str, value: bytes) -> None:
    while True:
        try:
            producer.produce(topic, value, partition=0)
        except BufferError:
            producer.poll(0.01)
        else:
            return


def consume(task: Task) -> dict[str, float]:
    """Read so many records from the beginning; the time is from the first to the last."""
    consumer = Consumer({**task.config, "group.id": "bench", "enable.auto.commit": "false"})
    consumer.assign([TopicPartition(task.topic, 0, 0)])
    found, begin, first = 0, 0.0, 0
    while found < task.records:
        messages = consumer.consume(AT_ONCE, 1.0)
        errors = [str(message.error()) for message in messages if message.error() is not None]
        if errors:
            raise RuntimeError(errors[0])
        found += len(messages)
        if messages and not first:
            begin, first = time.perf_counter(), len(messages)
    seconds = time.perf_counter() - begin
    consumer.close()
    return {"records_per_s": (found - first) / seconds}


def main() -> int:
    """Be one client."""
    told: Mapping[str, Any] = json.load(sys.stdin)
    task = Task(**told)
    figures = {"produce": produce, "consume": consume}[task.kind](task)
    times = os.times()
    json.dump(figures | {"client_cpu_us_per_record": (times.user + times.system) / task.records * 1e6}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
