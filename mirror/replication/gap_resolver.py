"""Resolves offsets that the source does not have: records a loss, then moves the position of the stream.

| found                                   | then                                                                   |
|-----------------------------------------|------------------------------------------------------------------------|
| a gap before the next batch             | by the topic's cleanup.policy of now: a loss, or compacted             |
| a position below the log's start        | a loss, then the log's start                                           |
| a position above the log's end          | leader epochs are checked first; else the loss, then the log's start   |

A session of the stream may start elsewhere during each wait: `reading` is another object then, and nothing is moved.
The rules are in gap_rules.py. Does not contain: truncations that leader epochs show (position_check.py).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping

from drupelet.observe.log_tree import Log
from kafka_wire.partitions import TopicPartition
from mirror.client.source_client import Source
from mirror.config import Config
from mirror.partition.stream import PartitionStream
from mirror.replication import gap_rules
from mirror.replication.active_period import ActivePeriod
from mirror.replication.backoffs import PartitionBackoffs
from mirror.replication.loss_writer import LossWriter

_log = Log("mirror")


class GapResolver:
    """Resolves gaps for the streams of one mirror."""

    def __init__(
        self,
        source: Source,
        losses: LossWriter,
        config: Config,
        streams: Mapping[TopicPartition, PartitionStream],
        backoffs: PartitionBackoffs,
        period: ActivePeriod,
        *,
        check_again: Callable[[Iterable[TopicPartition]], Awaitable[None]],
        count_duplicates: Callable[[PartitionStream, int], None],
    ) -> None:
        """`check_again` checks positions by the present leader epochs; it raises SourceError."""
        self._source, self._losses, self._config, self._streams = source, losses, config, streams
        self._backoffs, self._period = backoffs, period
        self._check_again, self._count_duplicates = check_again, count_duplicates

    async def cross_gap(self, stream: PartitionStream, end: int) -> None:
        """Move the position to `end`, where the next batch begins; raises SourceError, UntoldError."""
        reading = stream.reading
        await self._renew_topic_config(stream, end)
        if end > stream.crossed_to and gap_rules.classify_jump(compacted=stream.may_be_compacted) == "missing":
            await self._losses.write_loss(stream, "source_offset_jump", stream.read_offset, end)
        if stream.reading is reading:
            stream.read_offset, stream.crossed_to = end, max(end, stream.crossed_to)

    async def _renew_topic_config(self, stream: PartitionStream, end: int) -> None:
        """Read the cleanup.policy again if it is older than a refresh interval: an operator may have altered it."""
        if time.monotonic() - stream.settings_at < self._config.refresh_interval_ms / 1000:
            return
        topic = stream.partition.topic
        settings = (await self._source.settings([topic]))[topic]
        stream.take_settings(settings, max(end, stream.source_end or 0))

    async def resolve_out_of_range(self, partitions: Iterable[TopicPartition]) -> None:
        """Move positions that the source has refused as out of range; raises SourceError."""
        wanted = [partition for partition in partitions if partition in self._streams]
        starts, ends, unknown = await self._source.known_bounds(wanted)
        for partition, why in unknown.items():
            self._backoffs.back_off(self._streams[partition], why)
        wanted = [partition for partition in wanted if partition not in unknown]
        read = {tp: self._streams[tp].read_offset for tp in wanted}
        above = [tp for tp in wanted if self._streams[tp].read_offset > ends[tp] and self._streams[tp].has_epoch]
        if above:
            await self._check_again(above)
        for partition in wanted:
            stream = self._streams.get(partition)
            if stream is None or not stream.is_read or stream.read_offset != read[partition]:
                continue  # its leader epochs have decided
            await self._resolve(stream, starts[partition], ends[partition])

    async def _resolve(self, stream: PartitionStream, log_start: int, log_end: int) -> None:
        verdict = gap_rules.classify_out_of_range(stream.read_offset, log_start, log_end)
        if verdict.first_offset < verdict.end_offset:
            reading = stream.reading
            await self._losses.write_loss(
                stream, "source_offset_out_of_range", verdict.first_offset, verdict.end_offset
            )
            if stream.reading is not reading:
                return
        if verdict.resume_offset < stream.read_offset:
            self._rewind(stream, log_start, log_end)
        else:
            stream.read_offset = verdict.resume_offset
        self._period.sender.consider(stream)

    def _rewind(self, stream: PartitionStream, log_start: int, log_end: int) -> None:
        """Let the stream start again from the log's start, once all that it has read is safe at the target."""
        _log.error(
            "source_truncated", **stream.fields(), position=stream.read_offset, log_start=log_start, log_end=log_end
        )
        self._count_duplicates(stream, log_end - log_start)  # at most: the log may have other records now
        stream.go_back_to, stream.leader_epoch, stream.starts_anew = log_start, None, True
