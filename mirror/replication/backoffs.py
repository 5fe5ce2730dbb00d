"""Waits before the next attempt: of the mirror as a whole, and of partitions with a problem of their own.

Does not contain: attempts, waits of batches to the target (producer/failures/refusals.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from drupelet.backoff import Backoff
from kafka_wire.partitions import TopicPartition
from mirror.config import Config
from mirror.partition.stream import PartitionStream

BACKOFF_FIRST_S = 0.1


def new_backoff(config: Config) -> Backoff:
    """Return a backoff from its shortest wait on."""
    return Backoff(BACKOFF_FIRST_S, config.backoff_max_ms / 1000)


class PartitionBackoffs:
    """Partitions that the source refuses; `by_partition` has one backoff for each."""

    def __init__(self, config: Config, report_problem: Callable[[str, str], None]) -> None:
        self.by_partition: dict[TopicPartition, Backoff] = {}
        self._config, self._report_problem = config, report_problem

    def back_off(self, stream: PartitionStream, why: str) -> None:
        """Let one partition wait, longer each time; the others are read on."""
        backoff = self.by_partition.get(stream.partition)
        if backoff is None:
            backoff = self.by_partition[stream.partition] = new_backoff(self._config)
        stream.rest_until = time.monotonic() + backoff.next_s()
        self._report_problem(f"{stream.name} source", why)

    def end(self, stream: PartitionStream) -> None:
        """Note that a partition of `by_partition` was read."""
        del self.by_partition[stream.partition]
        self._report_problem(f"{stream.name} source", "")

    def forget(self, partition: TopicPartition) -> None:
        """Forget a partition that is mirrored no more."""
        self.by_partition.pop(partition, None)
