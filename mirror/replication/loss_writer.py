"""Writes to the mirror's own topics at the source: losses to `__edge_ledger`, refused records to the dead letters.

Each call returns once all replicas have the record; until then it retries with backoff, and reports the problem.
Does not contain: what a loss is, which records are refused.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping

from drupelet.backoff import Backoff
from drupelet.ledger import LEDGER_CONFIG, LEDGER_TOPIC
from drupelet.observe.log_tree import Log
from kafka_wire.partitions import TopicPartition
from mirror.client.target_client import Target
from mirror.config import Config
from mirror.errors import TargetError
from mirror.ledger import losses
from mirror.ledger.dead_letter import DEAD_LETTER_CONFIG, DEAD_LETTER_TOPIC
from mirror.partition.stream import PartitionStream
from mirror.status.metrics import Metrics

_log = Log("mirror")

BACKOFF_FIRST_S = 0.1


class LossWriter:
    """Writes for one mirror, one write at a time. `report_problem` reports a problem of a topic; empty text ends it."""

    def __init__(
        self,
        source: Target,
        config: Config,
        metrics: Metrics,
        node: str,
        report_problem: Callable[[str, str], None],
    ) -> None:
        """`source` writes to the source cluster; `node` names this mirror in each entry."""
        self._source, self._config, self._metrics, self._node, self._report_problem = (
            source,
            config,
            metrics,
            node,
            report_problem,
        )
        self._made: set[str] = set()  # topics that exist
        self._turn = asyncio.Lock()

    async def write_loss(
        self,
        stream: PartitionStream,
        cause: losses.Cause,
        first: int,
        end: int,
        size: int | None = None,
        occasion: str = "",
    ) -> None:
        """Record that the records in [first, end) are lost."""
        records = end - first if cause == "record_refused" or not stream.may_be_compacted else None
        entry = losses.loss(
            cause,
            stream.partition.topic,
            stream.partition.partition,
            first,
            end,
            records=records,
            size_bytes=size,
            time_ms=int(time.time() * 1000),
            node=self._node,
            occasion=occasion,
        )
        _log.error("loss", cause=cause, **stream.fields(), first_offset=first, last_offset=end - 1, records=records)
        key, value = losses.encode(entry)
        await self._write(
            "ledger", LEDGER_TOPIC, LEDGER_CONFIG, lambda s: self._source.write(LEDGER_TOPIC, key, value, s)
        )
        self._metrics.ledger.labels(cause).inc()

    async def write_letter(self, batch: bytes) -> None:
        """Write a refused record to the dead letters, as a batch of its own."""
        topic = DEAD_LETTER_TOPIC
        await self._write(topic, topic, DEAD_LETTER_CONFIG, lambda s: self._source.write_batch(topic, batch, s))

    async def _write(
        self, name: str, topic: str, settings: Mapping[str, str], write: Callable[[float], Awaitable[None]]
    ) -> None:
        async with self._turn:
            backoff = Backoff(BACKOFF_FIRST_S, self._config.backoff_max_ms / 1000)
            while True:
                if await self._try(name, topic, settings, write):
                    return
                await asyncio.sleep(backoff.next_s())

    async def _try(
        self, name: str, topic: str, settings: Mapping[str, str], write: Callable[[float], Awaitable[None]]
    ) -> bool:
        try:
            if topic not in self._made:
                await self._source.ensure_topic(TopicPartition(topic, 0), 1, settings)
                self._made.add(topic)
            await write(self._config.delivery_timeout_ms / 1000)
        except TargetError as error:
            self._report_problem(name, str(error))
            self._made.clear()
            await self._source.close()
            return False
        self._report_problem(name, "")
        return True
