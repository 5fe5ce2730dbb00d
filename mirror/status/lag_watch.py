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


class Watched(NamedTuple):
    """The parts of a mirror that are watched."""

    lanes: Mapping[TopicPartition, PartitionStream]
    progress: Progress
    link: Link
    memory: Memory
    troubles: Troubles
    metrics: Metrics


class Lags:
    """The lags of one mirror; `tick` each second, `ask` for ever."""

    def __init__(self, watched: Watched, stall_timeout_s: float, buffer_bytes_max: int) -> None:
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
                lane = self._watched.lanes.get(partition)
                if lane is not None:
                    lane.source_end = end

    def not_fetched(self, busy: Iterable[TopicPartition], now: float) -> list[TopicPartition]:
        """Return the partitions without a fetch since the last call; `busy` ones have one in flight now."""
        lanes, before = self._watched.lanes, self._fetched_at
        self._fetched_at = {partition: before.get(partition, now) for partition in lanes}
        self._fetched_at |= {partition: now for partition in busy if partition in lanes}
        return [partition for partition, at in self._fetched_at.items() if now - at >= ASK_S]

    def tick(self, now: float) -> None:
        """Show the lags, and note the partitions that stand still."""
        watched, stalled = self._watched, set[str]()
        waiting_bytes = self._waiting_bytes()
        for partition, lane in watched.lanes.items():
            lag = 0 if lane.source_end is None else max(0, lane.source_end - lane.offsets.acked)
            if lag != lane.lag_shown:
                lane.lag_shown = lag
                watched.progress.behind(lane, lag, now)
                watched.metrics.lag.labels(label_text(partition.topic), str(partition.partition)).set(lag)
            stands_s = self._stalls.note(partition, lane.offsets.acked, lag, now)
            if stands_s >= self._stalls.timeout_s and self._note_stall(lane, lag, stands_s, waiting_bytes, now):
                stalled.add(_name(lane))
        for name in self._stalled - stalled:
            watched.troubles.note(name, "", now)
        self._stalled = stalled
        watched.metrics.stalled.set(len(stalled))
        watched.progress.tick(now)

    def forget(self, lane: PartitionStream) -> None:
        """Watch a partition no more."""
        self._stalls.forget(lane.partition)
        self._watched.troubles.note(_name(lane), "", time.monotonic())

    def _note_stall(self, lane: PartitionStream, lag: int, stands_s: float, waiting_bytes: int, now: float) -> bool:
        cause = self._cause(lane)
        limit_s = self._stalls.limit_s(waiting_bytes, self._watched.link.rate, is_troubled=bool(cause))
        if stands_s < limit_s:
            return False
        cause = cause or self._turn(lane)
        text = f"none of its {lag} records became safe for more than {self._stalls.timeout_s:g} s: {cause}"
        self._watched.troubles.note(_name(lane), text, now)
        return True

    def _waiting_bytes(self) -> int:
        """Return the bytes that the link must carry before a partition without a problem has its turn again."""
        lanes = self._watched.lanes.values()
        batch_bytes = self._watched.link.batch_bytes
        return sum(max(lane.held_bytes, batch_bytes if lane.lag_shown else 0) for lane in lanes if not lane.blocked)

    def _cause(self, lane: PartitionStream) -> str:
        """Return what is wrong with the partition, its brokers or the ends; empty text if nothing is."""
        troubles = self._watched.troubles
        for name in (lane.name, f"{lane.name} source", f"{lane.name} position"):
            if name in troubles:
                return troubles[name]
        if lane.leader.node < 0:
            return "the source has no leader for it"
        nodes = () if lane.pipe is None else (f"target broker {lane.pipe.node}",)
        for name, text in troubles.items():
            if name in nodes or any(name.startswith(f"{node}, ") for node in nodes):
                return f"{name}: {text}"
        for name in ("source", "target", "source fetch", "target ack", "state topic", "ledger", "positions"):
            if name in troubles:
                return f"{name}: {'not reached' if troubles[name] == NOT_YET else troubles[name]}"
        return ""

    def _turn(self, lane: PartitionStream) -> str:
        """Return what a partition without a problem waits for."""
        held = f"{lane.held_bytes} bytes of it are read"
        if lane.flight:
            return f"{held}, and {sum(batch.size for batch in lane.flight)} wait for an acknowledgement"
        if lane.held_bytes:
            return f"{held}, and wait for their turn on the link"
        if not lane.is_read:
            return "its position is being checked"
        if self._watched.memory.bytes >= self._buffer_bytes_max * FULL_SHARE:
            return f"it waits for memory, of which {self._watched.memory.bytes} bytes are taken (buffer_bytes_max)"
        return "the source sends nothing of it; a transaction may be open there"


def _name(lane: PartitionStream) -> str:
    return f"{lane.name} stalled"
