"""Reads batches of the source into the streams, and chooses which streams are read next.

| response of a partition | then |
|---|---|
| batches | each gap is resolved first (gap_resolver.py), then they wait in the stream |
| a broker that is not reached, another leader, epoch or topic | its position is checked again |
| out of range | gap_resolver.py |
| any other error, or a batch that is corrupt | it backs off, the others are read on |

Does not contain: requests (client/fetcher.py), which partitions exist (partition_registry.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from drupelet.printable import label_text
from edge_broker.errors import ErrorCode, error_name
from kafka_wire.partitions import TopicPartition
from kafka_wire.records.batches import BadBatch, Piece, SkippedRange, pieces_of
from mirror.client.fetcher import Answer, Place
from mirror.client.source_client import Source
from mirror.config import Config
from mirror.errors import SourceError, UntoldError
from mirror.partition.leader_epochs import epoch_starts
from mirror.partition.stream import Memory, PartitionStream
from mirror.replication.active_period import ActivePeriod
from mirror.replication.backoffs import PartitionBackoffs
from mirror.replication.gap_resolver import GapResolver
from mirror.replication.partition_registry import PartitionRegistry
from mirror.status.metrics import Metrics

POLL_S = 1.0
STREAM_SHARE = 4  # of the memory, that one stream may fill
BULK_SHARE = 0.75  # of the memory, beyond which only streams are read that have less than their share of it
URGENT_SHARE = 8  # of the memory, that is kept for urgent streams where there can be some
FENCED = (
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)
"""The partition has another leader or leader epoch than at the check of its position; or is of a new topic."""
SOURCE_SILENT_REOPEN_S = 60.0


class SourceReader:
    """Reads for one mirror and the streams of its registry."""

    def __init__(
        self,
        source: Source,
        config: Config,
        registry: PartitionRegistry,
        gaps: GapResolver,
        backoffs: PartitionBackoffs,
        period: ActivePeriod,
        memory: Memory,
        metrics: Metrics,
        report_problem: Callable[[str, str], None],
    ) -> None:
        self._source, self._config, self._registry, self._gaps = source, config, registry, gaps
        self._backoffs, self._period, self._memory, self._metrics = backoffs, period, memory, metrics
        self._report_problem = report_problem
        self._has_urgent_rules = any(rule.values.get("urgent") for rule in config.rules)
        self._turn = 0

    async def read_batches(self) -> bool:
        """Read once from the streams with room; return whether a partition's leader is another than its stream's.

        Raises SourceError, OriginsChangedError.
        """
        places = self.choose_places()
        memory, registry = self._memory, self._registry
        memory.room.clear()
        room = self._config.buffer_bytes_max - memory.bytes
        answers = await self._source.reader.poll(places, room, POLL_S, memory.room)
        registry.admission.screen.batches_read()
        moved, out_of_range = False, []
        for answer in answers:
            stream = registry.streams.get(answer.partition)
            if stream is None or not stream.is_read or answer.place != _place(stream):
                continue  # its position was checked meanwhile, or a session has started elsewhere
            if answer.failed:
                self._report_problem("source", answer.failed)
                stream.leader_epoch, moved = None, True
                continue
            if answer.error_code in FENCED:
                stream.leader_epoch, moved = None, True
            elif answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                out_of_range.append(answer.partition)
            elif answer.error_code:
                self._backoffs.back_off(stream, error_name(answer.error_code))
            else:
                await self._accept(stream, answer)
        if out_of_range:
            await self._gaps.resolve_out_of_range(out_of_range)
        if self._source.reader.silent_s > SOURCE_SILENT_REOPEN_S:
            raise SourceError(f"no answer for {SOURCE_SILENT_REOPEN_S:.0f} s")
        return moved

    # -- which streams are read

    def choose_places(self) -> dict[TopicPartition, Place]:
        """Return the places to read. The streams rotate, as a response has room for some of them only.

        With little traffic, most partitions have a fetch in flight: they are left out first.
        """
        now, busy = time.monotonic(), self._source.reader.busy
        streams = self._registry.streams.values()
        free = [stream for stream in streams if stream.partition not in busy and stream.rest_until <= now]
        holding = [stream for stream in streams if stream.held_bytes] if free else []
        urgent_bytes = sum(stream.held_bytes for stream in holding if stream.urgent)
        ready = [stream for stream in free if self._has_room(stream, urgent_bytes, len(holding))]
        ready = self._period.sender.refusals.held.readable(ready, busy)
        if not ready:
            return {}
        self._turn = (self._turn + 1) % len(ready)
        turns = sorted(ready[self._turn :] + ready[: self._turn], key=lambda stream: not stream.urgent)
        return {stream.partition: _place(stream) for stream in turns}

    def _has_room(self, stream: PartitionStream, urgent_bytes: int, holding: int) -> bool:
        """Return whether a stream may hold more. Urgent streams have a share of the memory that no backlog fills.

        `holding` is the number of streams that hold something. Once they hold much, only streams with less than their
        share are read. Otherwise a backlog on one slow connection would leave no memory for another one.
        """
        if not stream.is_read or stream.leader.node < 0:
            return False
        if not stream.has_session:  # records without a topic at the target would fill the memory of the others
            return False
        bytes_max = self._config.buffer_bytes_max
        if self._has_urgent_rules:
            kept = bytes_max // URGENT_SHARE
            if stream.urgent and urgent_bytes < kept:
                return True
            bytes_max -= kept
        held_bytes = self._memory.bytes - self._period.sender.refusals.held.excess_bytes
        if held_bytes >= bytes_max * BULK_SHARE:
            return stream.held_bytes * holding < bytes_max * BULK_SHARE and held_bytes < bytes_max
        return stream.held_bytes < bytes_max // STREAM_SHARE

    # -- responses

    async def _accept(self, stream: PartitionStream, answer: Answer) -> None:
        """Put batches into the stream, after every gap in their offsets was explained or recorded as a loss.

        A session of the stream may start elsewhere meanwhile: then the other batches are dropped.
        """
        reading = stream.reading
        stream.source_end = answer.log_end
        for start in epoch_starts(answer.batches, stream.read_offset):
            stream.offsets.epochs.note(*start)
        try:
            for found in pieces_of(answer.batches, stream.read_offset, answer.aborted):
                if found.first_offset > stream.read_offset:
                    await self._gaps.cross_gap(stream, found.first_offset)
                if stream.reading is not reading:
                    break
                if isinstance(found, Piece):
                    header, writers = found.header, stream.writers
                    is_same = header.producer_id == writers.producer_id and header.producer_epoch == writers.epoch
                    if not is_same and not await self._registry.admission.turn_to_writer(stream, found, answer.log_end):
                        break
                self._put(stream, found)
        except (BadBatch, UntoldError) as error:
            self._backoffs.back_off(stream, str(error))
        else:
            if stream.partition in self._backoffs.by_partition:
                self._backoffs.end(stream)
        self._period.sender.consider(stream)

    def _put(self, stream: PartitionStream, found: Piece | SkippedRange) -> None:
        if isinstance(found, Piece) and not stream.writers.passes_over:
            stream.put(found, asyncio.get_running_loop().time())
            return
        if isinstance(found, Piece):
            labels = label_text(stream.partition.topic), str(stream.partition.partition)
            self._metrics.passed_over.labels(*labels).inc(found.end_offset - found.first_offset)
        stream.read_offset = found.end_offset


def _place(stream: PartitionStream) -> Place:
    epoch = -1 if stream.leader_epoch is None else stream.leader_epoch
    return Place(stream.leader.node, epoch, stream.read_offset, stream.urgent, stream.topic_id)
