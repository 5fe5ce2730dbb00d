"""How long each partition's producer waits for an answer while something happens to the brokers.

One librdkafka producer, acks=all and idempotent, sends a small record to every partition in turn, each so many times a
second, and notes when each was answered. A partition's pause is its longest time between two answers.

Lives here: that producer. Must never come in: what happens meanwhile, and what is compared with what.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, Message, Producer

from tests.support.waiting import CALL_S, wait_until

QUICK = {"retry.backoff.ms": 50, "retry.backoff.max.ms": 100, "topic.metadata.refresh.fast.interval.ms": 50}
VALUE = b"x" * 100


class Pauses:
    """A context manager: the producer works inside; `longest_ms` is told after it."""

    def __init__(self, bootstrap: str, topic: str, partitions: Sequence[int], each_per_s: float) -> None:
        """Describe it; each partition gets `each_per_s` records a second, which bounds what can be told apart."""
        self.longest_ms = dict.fromkeys(partitions, 0.0)
        self.answered = dict.fromkeys(partitions, 0)
        self._latest = dict.fromkeys(partitions, 0.0)
        self._topic, self._pause_s = topic, 1 / (each_per_s * len(partitions))
        self._failed: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 1,
                "log_level": 0,
                **QUICK,
            }
        )

    def __enter__(self) -> Self:
        """Begin, and return once every partition has answered ten times."""
        self._thread.start()
        wait_until(
            lambda: min(self.answered.values()) >= 10, CALL_S, "every partition answers", seen=lambda: self._failed[:1]
        )
        self.begin()
        return self

    def begin(self) -> None:
        """Forget what has been: the pauses from now on count."""
        self.longest_ms = dict.fromkeys(self.longest_ms, 0.0)

    def wait_answers(self, more: int = 10) -> None:
        """Wait until every partition has so many more answers."""
        due = {partition: each + more for partition, each in self.answered.items()}

        def come() -> bool:
            return all(self.answered[partition] >= wanted for partition, wanted in due.items())

        wait_until(come, CALL_S, "every partition answers again", seen=lambda: self._failed[:1])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop; RuntimeError when a record was refused for good."""
        self._stopping.set()
        self._thread.join()
        if kind is None and self._failed:
            raise RuntimeError(f"{len(self._failed)} records were not taken: {self._failed[0]}")

    def _work(self) -> None:
        partitions = itertools.cycle(self.answered)
        begin, sent = time.perf_counter(), 0
        while not self._stopping.is_set():
            due = int((time.perf_counter() - begin) / self._pause_s)
            while sent < due:
                self._producer.produce(self._topic, VALUE, partition=next(partitions), on_delivery=self._told)
                sent += 1
            self._producer.poll(0.002)
        left = self._producer.flush(CALL_S)
        if left:
            self._failed.append(f"{left} were never answered")

    def _told(self, error: KafkaError | None, message: Message) -> None:
        partition = message.partition()
        if error is not None or partition is None:
            self._failed.append(str(error))
            return
        now = time.perf_counter()
        if self.answered[partition]:
            gap_ms = (now - self._latest[partition]) * 1000
            self.longest_ms[partition] = max(self.longest_ms[partition], gap_ms)
        self._latest[partition] = now
        self.answered[partition] += 1
