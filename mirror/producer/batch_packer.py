"""Packs batches in the worker thread, and gives each its sequences: from then on its bytes and bounds are final.

| the worker returns | then |
|---|---|
| a batch | it gets the next sequences of its stream |
| a batch without records: compaction has left none | it gets no sequences, and is not sent |
| an error | the source batches return to the buffer, and the stream backs off |
| anything, while the stream is unsure, or the sender stops | the source batches return to the buffer |
| anything, after the stream was dropped | the source batches are released |

Does not contain: which source batches make a batch (batching.py), when a batch is sent (sender.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from kafka_wire.records.batches import PackedBatch, TooMuchAtOnce, stamp
from kafka_wire.records.codecs import Packer
from mirror.link.link_model import Link
from mirror.partition.send_state import GONE, UNSURE
from mirror.partition.stream import Batch, PartitionStream
from mirror.partition.target_state import Contradiction
from mirror.producer.batching import Job, learn, pack_all


class Resolver(Protocol):
    """Resolves what keeps a stream from sending."""

    def back_off(self, stream: PartitionStream, problem: str) -> None:
        """Report the problem of a stream, and send nothing of it for a while."""

    def mark_unsure(self, stream: PartitionStream) -> None:
        """Send nothing of a stream until it has another producer session."""

    def start_resolving(self, stream: PartitionStream) -> None:
        """Resolve what a stream has in flight, if its outcome is unknown and nothing of it is packed any more."""


class BatchPacker:
    """Packs for all streams; after `stopping` was set, nothing that was packed is sent."""

    def __init__(self, link: Link, resolver: Resolver) -> None:
        self.stopping = False
        self._link, self._resolver = link, resolver
        self._worker = Packer()

    async def close(self) -> None:
        """End the worker thread."""
        await self._worker.close()

    async def pack(self, jobs: Sequence[Job]) -> list[Batch]:
        """Pack; return the batches that may be sent."""
        if not jobs:
            return []
        loop = asyncio.get_running_loop()
        level, began = self._link.zstd_level, loop.time()
        results = await self._worker.pack(pack_all, jobs, level)
        if not any(job.forward for job in jobs):
            size = sum(len(result.batch) for result in results if isinstance(result, PackedBatch))
            self._link.batch_packed(loop.time() - began, size, level)
        return [batch for job, result in zip(jobs, results, strict=True) if (batch := self._build(job, result))]

    def _build(self, job: Job, result: PackedBatch | Exception) -> Batch | None:
        stream, pieces, _ = job
        stream.packing = False
        if stream.send_state is GONE:
            stream.release(pieces)
            return None
        if isinstance(result, Exception) or stream.send_state in UNSURE or self.stopping:
            stream.return_to_buffer(pieces)
            if isinstance(result, TooMuchAtOnce):
                stream.growth *= 2
            elif isinstance(result, Exception):
                self._resolver.back_off(stream, str(result))
            self._resolver.start_resolving(stream)
            return None
        learn(stream, pieces, result, was_forwarded=job.forward)
        if not result.records:
            return Batch(stream, pieces, result, None)
        state = stream.state
        assert state is not None
        try:
            sent = state.send(result.runs, pieces[0].header.leader_epoch)
        except Contradiction:
            stream.return_to_buffer(pieces)
            stream.contradicts = True
            self._resolver.mark_unsure(stream)
            return None
        life = state.session
        stamp(result.batch, *life[:2], sent.base_sequence, transactional=life.is_transactional)
        return Batch(stream, pieces, result, sent)
