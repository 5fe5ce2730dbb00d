"""Watches each partition's lag, and which partitions stand still and why, by the source's end offsets.

A partition that is fetched learns its end with each response. The ends of the others (blocked, without a leader or a
topic at the target, not yet checked, without memory) are queried by ListOffsets each ASK_S.

| name of the problem | text |
|---|---|
| TOPIC-N stalled | that no record became safe for too long, and the cause |

Does not contain: when a partition counts as stalled (stalls.py), rates (rates.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from drupelet.printable import label_text
from kafka_wire.partitions import TopicPartition
from mirror.client.source_client import Source
from mirror.errors import SourceError
from mirror.link.link_model import Link
from mirror.partition.stream import Memory, PartitionStream
from mirror.status.metrics import Metrics
from mirror.status.problems import NOT_YET, Troubles
from mirror.status.rates import Progress
from mirror.status.stalls import Stalls

ASK_S = 5.0
FULL_SHARE = 0.75  # of the memory, from which on partitions wait for it


class WatchedParts(NamedTuple):
    """The parts of a mirror that are watched."""

    streams: Mapping[TopicPartition, PartitionStream]
    progress: Progress
    link: Link
    memory: Memory
    troubles: Troubles
    metrics: Metrics


class Lags:
    """The lags of one mirror; `tick` each second, `ask` for ever."""

    def __init__(self, watched: WatchedParts, stall_timeout_s: float, buffer_bytes_max: int) -> None:
        self._watched, self._buffer_bytes_max = watched, buffer_bytes_max
        self._stalls = Stalls(stall_timeout_s)
        self._stalled: set[str] = set()  # names of problems
        self._fetched_at: dict[TopicPartition, float] = {}

    async def ask(self, source: Source) -> None:
        """Query the ends of partitions that no fetch was in flight for, repeatedly."""
        while True:
            await asyncio.sleep(ASK_S)
            wanted = self.not_fetched(source.reader.busy, time.monotonic())
            if not wanted:
                continue
            try:
                ends = await source.ends(wanted)
            except SourceError:
                continue  # the fetches report the source's problem
            for partition, end in ends.items():
                stream = self._watched.streams.get(partition)
                if stream is not None:
                    stream.source_end = end

    def not_fetched(self, busy: Iterable[TopicPartition], now: float) -> list[TopicPartition]:
        """Return the partitions without a fetch since the last call; `busy` ones have one in flight now."""
        streams, before = self._watched.streams, self._fetched_at
        self._fetched_at = {partition: before.get(partition, now) for partition in streams}
        self._fetched_at |= {partition: now for partition in busy if partition in streams}
        return [partition for partition, at in self._fetched_at.items() if now - at >= ASK_S]

    def tick(self, now: float) -> None:
        """Show the lags, and note the partitions that stand still."""
        watched, stalled = self._watched, set[str]()
        waiting_bytes = self._waiting_bytes()
        for partition, stream in watched.streams.items():
            lag = 0 if stream.source_end is None else max(0, stream.source_end - stream.offsets.acked)
            if lag != stream.lag_shown:
                stream.lag_shown = lag
                watched.progress.note_lag(stream, lag, now)
                watched.metrics.lag.labels(label_text(partition.topic), str(partition.partition)).set(lag)
            stands_s = self._stalls.note(partition, stream.offsets.acked, lag, now)
            if stands_s >= self._stalls.timeout_s and self._note_stall(stream, lag, stands_s, waiting_bytes, now):
                stalled.add(_name(stream))
        for name in self._stalled - stalled:
            watched.troubles.note(name, "", now)
        self._stalled = stalled
        watched.metrics.stalled.set(len(stalled))
        watched.progress.tick(now)

    def forget(self, stream: PartitionStream) -> None:
        """Watch a partition no more."""
        self._stalls.forget(stream.partition)
        self._watched.troubles.note(_name(stream), "", time.monotonic())

    def _note_stall(self, stream: PartitionStream, lag: int, stands_s: float, waiting_bytes: int, now: float) -> bool:
        cause = self._cause(stream)
        limit_s = self._stalls.limit_s(waiting_bytes, self._watched.link.rate, is_troubled=bool(cause))
        if stands_s < limit_s:
            return False
        cause = cause or self._turn(stream)
        text = f"none of its {lag} records became safe for more than {self._stalls.timeout_s:g} s: {cause}"
        self._watched.troubles.note(_name(stream), text, now)
        return True

    def _waiting_bytes(self) -> int:
        """Return the bytes that the link must carry before a partition without a problem has its turn again."""
        streams = self._watched.streams.values()
        batch_bytes = self._watched.link.batch_bytes
        return sum(
            max(stream.held_bytes, batch_bytes if stream.lag_shown else 0) for stream in streams if not stream.blocked
        )

    def _cause(self, stream: PartitionStream) -> str:
        """Return what is wrong with the partition, its brokers or the ends; empty text if nothing is."""
        troubles = self._watched.troubles
        for name in (stream.name, f"{stream.name} source", f"{stream.name} position"):
            if name in troubles:
                return troubles[name]
        if stream.leader.node < 0:
            return "the source has no leader for it"
        nodes = () if stream.connection is None else (f"target broker {stream.connection.node}",)
        for name, text in troubles.items():
            if name in nodes or any(name.startswith(f"{node}, ") for node in nodes):
                return f"{name}: {text}"
        for name in ("source", "target", "source fetch", "target ack", "state topic", "ledger", "positions"):
            if name in troubles:
                return f"{name}: {'not reached' if troubles[name] == NOT_YET else troubles[name]}"
        return ""

    def _turn(self, stream: PartitionStream) -> str:
        """Return what a partition without a problem waits for."""
        held = f"{stream.held_bytes} bytes of it are read"
        if stream.flight:
            return f"{held}, and {sum(batch.size for batch in stream.flight)} wait for an acknowledgement"
        if stream.held_bytes:
            return f"{held}, and wait for their turn on the link"
        if not stream.is_read:
            return "its position is being checked"
        if self._watched.memory.bytes >= self._buffer_bytes_max * FULL_SHARE:
            return f"it waits for memory, of which {self._watched.memory.bytes} bytes are taken (buffer_bytes_max)"
        return "the source sends nothing of it; a transaction may be open there"


def _name(stream: PartitionStream) -> str:
    return f"{stream.name} stalled"
