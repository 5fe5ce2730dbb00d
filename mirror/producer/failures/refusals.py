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
from mirror.ledger.dead_letter import RefusedRecord
from mirror.link.link_model import Link
from mirror.partition.stream import Batch, PartitionStream
from mirror.producer.failures.blocked_partitions import BlockedPartitions

STOPPED_TIMES = 30  # the usual wait: a record that stops its partition may be large, and waits for an operator


class Host(Protocol):
    """The owner of the partitions."""

    def refused_record(self, stream: PartitionStream, refused: RefusedRecord) -> Awaitable[bool]:
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
        self.held = BlockedPartitions(buffer_bytes_max)
        self._link, self._host, self._note = link, host, note
        self._batch_bytes_max = batch_bytes_max

    # waits

    async def wait(self, stream: PartitionStream, wait_s: float, refused: Sequence[Batch] = ()) -> None:
        """Let a partition wait for its next attempt, of refused batches or for another reason.

        Raises Contradiction, before it waits, if the batches may not be packed again.
        """
        wait_s = self.pause_s(stream, wait_s, refused)
        if self.held.block(stream):
            if refused and stream.flight:
                self.requeue(stream)
            self._release(stream)
        await asyncio.sleep(wait_s)
        self.attempt(stream)

    def pause_s(self, stream: PartitionStream, wait_s: float, refused: Sequence[Batch]) -> float:
        """Return how long the next attempt with these waits, in seconds: `wait_s`, or for its share of the link."""
        if not refused or stream not in self.held:
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

    def block(self, stream: PartitionStream) -> None:
        """Let a partition wait until `attempt` or `forget`."""
        if self.held.block(stream):
            self._release(stream)

    def attempt(self, stream: PartitionStream) -> None:
        """Let a partition be tried."""
        self.held.attempt(stream)
        stream.memory.room.set()

    def forget(self, streams: Iterable[PartitionStream]) -> None:
        """Let these be read as any others."""
        for stream in streams:
            if stream in self.held:
                self.held.forget(stream)
                stream.memory.room.set()

    @staticmethod
    def _release(stream: PartitionStream) -> None:
        """Release batches that can be read again: not those that the source has lost meanwhile."""
        if stream.go_back_to is None:
            stream.release_buffer()

    # refused batches

    def requeue(self, stream: PartitionStream) -> None:
        """Return all final batches that are not at the target to the buffer, or raise Contradiction."""
        batches = list(stream.flight)
        assert stream.state is not None
        assert batches[0].sent is not None
        stream.state.reuse_sequences(batches[0].sent)
        stream.flight.clear()
        stream.offsets.requeue(len(stream.uncommitted))
        for batch in reversed(batches):
            stream.return_to_buffer(batch.pieces)
        self._note(stream)

    async def take_apart(self, stream: PartitionStream, reason: str, backoff: Backoff) -> None:
        """Split the first batch in flight; for a single record the host decides. Raises Contradiction."""
        head = stream.flight[0]
        self.requeue(stream)
        await self.take_in_two(stream, head, reason, backoff)

    async def take_in_two(self, stream: PartitionStream, head: Batch, reason: str, backoff: Backoff) -> None:
        """Split a batch whose source batches are the first in the buffer."""
        for _ in head.pieces:
            stream.take()
        try:
            first, second = split(head.pieces)
        except ValueError:
            await self._refuse_record(stream, head, reason, backoff)
            return
        stream.count_held(
            sum(len(piece.batch) for piece in (*first, *second)) - sum(len(piece.batch) for piece in head.pieces)
        )
        stream.return_to_buffer(second)
        stream.return_to_buffer(first)
        stream.boundary = first[-1].end_offset
        stream.batch_bytes_max = max(1, head.packed.payload_bytes // 2)

    async def _refuse_record(self, stream: PartitionStream, head: Batch, reason: str, backoff: Backoff) -> None:
        ((offset, _),) = head.packed.runs
        stream.packing = True  # or it would count as drained
        refused = RefusedRecord(offset, head.pieces[0], record_bytes(head.pieces[0]), reason, head.said)
        goes_on = await self._host.refused_record(stream, refused)
        stream.packing = False
        if goes_on:
            stream.skip(head.end_offset)
            stream.release(head.pieces)
            stream.batch_bytes_max, stream.boundary = self._batch_bytes_max, None
            self.forget([stream])
            return
        stream.return_to_buffer(head.pieces)
        stream.batch_bytes_max, stream.boundary = self._batch_bytes_max, head.end_offset
        await self.wait(stream, backoff.next_s() * STOPPED_TIMES, [head])
