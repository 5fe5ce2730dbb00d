"""Handles a batch that the target refuses, or a partition that it cannot accept now: waits, splits, releases memory.

| a partition | then |
|---|---|
| waits for its next attempt | it is blocked, and releases batches beyond its share (blocked_partitions.py) |
| has a batch that is too large, or with a record that is refused | the batch is split, down to one record |
| has one record that is refused | the host decides: the record is a dead letter, or the partition waits |

Batches of unknown outcome are kept until the log shows their outcome. Does not contain: the meaning of a response
(produce_errors.py), which batches are sent again as they are (delivery_resolver.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

from drupelet.backoff import Backoff
from kafka_wire.records.batches import record_bytes, split
from mirror.ledger.dead_letter import Refused
from mirror.link.link_model import Link
from mirror.partition.stream import Batch, PartitionStream
from mirror.producer.failures.blocked_partitions import Held

STOPPED_TIMES = 30  # the usual wait: a record that stops its partition may be large, and waits for an operator


class Host(Protocol):
    """The owner of the partitions."""

    def refused_record(self, lane: PartitionStream, refused: Refused) -> Awaitable[bool]:
        """Resolve a refused record as configured; return whether the partition continues after it."""


class Refusals:
    """The refusals of one sender; `held` has the partitions that are blocked or tried."""

    def __init__(
        self,
        link: Link,
        host: Host,
        note: Callable[[PartitionStream], None],
        *,
        batch_bytes_max: int,
        buffer_bytes_max: int,
    ) -> None:
        """`note` writes the state of a partition that the state topic lacks."""
        self.held = Held(buffer_bytes_max)
        self._link, self._host, self._note = link, host, note
        self._batch_bytes_max = batch_bytes_max

    # waits

    async def wait(self, lane: PartitionStream, wait_s: float, refused: Sequence[Batch] = ()) -> None:
        """Let a partition wait for its next attempt, of refused batches or for another reason.

        Raises Contradiction, before it waits, if the batches may not be packed again.
        """
        wait_s = self.pause_s(lane, wait_s, refused)
        if self.held.block(lane):
            if refused and lane.flight:
                self.take_back(lane)
            self._let_go(lane)
        await asyncio.sleep(wait_s)
        self.attempt(lane)

    def pause_s(self, lane: PartitionStream, wait_s: float, refused: Sequence[Batch]) -> float:
        """Return how long the next attempt with these waits, in seconds: `wait_s`, or for its share of the link."""
        if not refused or lane not in self.held:
            return wait_s
        return max(wait_s, self.held.pause_s(asyncio.get_running_loop().time(), self._link_s(refused)))

    def _link_s(self, batches: Sequence[Batch]) -> float:
        """Return for how long these took the link, in seconds: the lower of two estimates that may be far too high.

        The rate is of the bytes that were sent, however few. The time includes batches that were sent before.
        """
        link = self._link
        by_time_s = max(batch.took_s for batch in batches) - (link.round_trip_s or 0.0)
        by_rate_s = sum(batch.size for batch in batches) / link.rate if link.rate else by_time_s
        return max(0.0, min(by_time_s, by_rate_s))

    def block(self, lane: PartitionStream) -> None:
        """Let a partition wait until `attempt` or `forget`."""
        if self.held.block(lane):
            self._let_go(lane)

    def attempt(self, lane: PartitionStream) -> None:
        """Let a partition be tried."""
        self.held.attempt(lane)
        lane.memory.room.set()

    def forget(self, lanes: Iterable[PartitionStream]) -> None:
        """Let these be read as any others."""
        for lane in lanes:
            if lane in self.held:
                self.held.forget(lane)
                lane.memory.room.set()

    @staticmethod
    def _let_go(lane: PartitionStream) -> None:
        """Release batches that can be read again: not those that the source has lost meanwhile."""
        if lane.go_back_to is None:
            lane.let_go()

    # refused batches

    def take_back(self, lane: PartitionStream) -> None:
        """Return all final batches that are not at the target to the buffer, or raise Contradiction."""
        batches = list(lane.flight)
        assert lane.state is not None
        assert batches[0].sent is not None
        lane.state.take_back(batches[0].sent)
        lane.flight.clear()
        lane.offsets.take_back(len(lane.uncommitted))
        for batch in reversed(batches):
            lane.return_to_buffer(batch.pieces)
        self._note(lane)

    async def take_apart(self, lane: PartitionStream, reason: str, backoff: Backoff) -> None:
        """Split the first batch in flight; for a single record the host decides. Raises Contradiction."""
        head = lane.flight[0]
        self.take_back(lane)
        await self.take_in_two(lane, head, reason, backoff)

    async def take_in_two(self, lane: PartitionStream, head: Batch, reason: str, backoff: Backoff) -> None:
        """Split a batch whose source batches are the first in the buffer."""
        for _ in head.pieces:
            lane.take()
        try:
            first, second = split(head.pieces)
        except ValueError:
            await self._refuse_record(lane, head, reason, backoff)
            return
        lane.hold(sum(len(piece.batch) for piece in (*first, *second)) - sum(len(piece.batch) for piece in head.pieces))
        lane.return_to_buffer(second)
        lane.return_to_buffer(first)
        lane.boundary = first[-1].end_offset
        lane.batch_bytes_max = max(1, head.packed.payload_bytes // 2)

    async def _refuse_record(self, lane: PartitionStream, head: Batch, reason: str, backoff: Backoff) -> None:
        ((offset, _),) = head.packed.runs
        lane.packing = True  # or it would count as drained
        refused = Refused(offset, head.pieces[0], record_bytes(head.pieces[0]), reason, head.said)
        goes_on = await self._host.refused_record(lane, refused)
        lane.packing = False
        if goes_on:
            lane.skip(head.end_offset)
            lane.release(head.pieces)
            lane.batch_bytes_max, lane.boundary = self._batch_bytes_max, None
            self.forget([lane])
            return
        lane.return_to_buffer(head.pieces)
        lane.batch_bytes_max, lane.boundary = self._batch_bytes_max, head.end_offset
        await self.wait(lane, backoff.next_s() * STOPPED_TIMES, [head])
