"""Reports a mirror's state by its group at the source, if the mirror itself is not queried.

| figure | is |
|---|---|
| lag | the source's end minus the committed position |
| lag_s | the age of the first record after the position, by its own timestamp |
| lag_bytes | as many batches like the first one after the position; always an estimate |
| rates, link, wire | not known |
| troubles | partitions whose offsets the source does not return now; the others are shown |

Contains: the queries of the source. Does not contain: text for a person, queries of the mirror (status_command.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from kafka_wire.partitions import TopicPartition
from kafka_wire.records.batches import Piece, SkippedRange
from mirror.client.source_client import Source
from mirror.config import Config
from mirror.errors import SourceError
from mirror.partition.source_offsets import Commit
from mirror.status.report import TOLD_BY_SOURCE, PartitionStatus, Report, SideStatus, topics_of
from mirror.topics.selection import TopicNameError, target_name

LOOKS_AT_ONCE = 16


async def standing(config: Config) -> Report:
    """Return the report by the source; raises SourceError."""
    source = Source(config.source_client, config.group_id)
    try:
        partitions = await _partitions(source, config)
    finally:
        await source.close()
    return Report(
        told_by=TOLD_BY_SOURCE,
        time_ms=int(time.time() * 1000),
        group=config.group_id,
        source=SideStatus(config.source),
        target=SideStatus(config.target),
        link=None,
        up_s=None,
        buffered_bytes=None,
        troubles=[one.trouble for one in partitions if one.source_end is None and one.trouble],
        topics=topics_of(partitions, {one.topic: _target_name(one.topic, config) for one in partitions}),
        partitions=partitions,
    )


def _target_name(topic: str, config: Config) -> str | None:
    try:
        return target_name(topic, config.name_policy, config.site or None)
    except TopicNameError:
        return None


async def _partitions(source: Source, config: Config) -> list[PartitionStatus]:
    known = await source.topics()
    commits = await source.commits()
    chosen = config.selection.of(known) if config.topics else []
    there = {TopicPartition(name, number) for name in chosen for number in known[name].leaders}
    there |= {tp for tp in commits if tp.topic in known and tp.partition in known[tp.topic].leaders}
    starts, ends, untold = await source.known_bounds(there)
    looks = asyncio.Semaphore(LOOKS_AT_ONCE)

    async def one(partition: TopicPartition) -> PartitionStatus:
        if partition in untold:
            return _unknown_status(partition, untold[partition], commits)
        status = _status(partition, ends, commits)
        if not status.lag or status.position is None:
            return status
        async with looks:
            return await _looked_at(source, status, max(status.position, starts[partition]))

    return await asyncio.gather(*(one(partition) for partition in sorted(there | commits.keys())))


def _unknown_status(partition: TopicPartition, why: str, commits: Mapping[TopicPartition, Commit]) -> PartitionStatus:
    name = f"{partition.topic}-{partition.partition}"
    position = commits[partition].offset if partition in commits else None
    trouble = f"the source does not return the offsets of {name}: {why}"
    return PartitionStatus(partition.topic, partition.partition, None, position, None, trouble=trouble)


def _status(
    partition: TopicPartition, ends: Mapping[TopicPartition, int], commits: Mapping[TopicPartition, Commit]
) -> PartitionStatus:
    end = ends.get(partition)
    position = commits[partition].offset if partition in commits else None
    lag = None if end is None or position is None else max(0, end - position)
    nothing = None if lag else 0
    return PartitionStatus(partition.topic, partition.partition, end, position, lag, nothing, lag_s=nothing)


async def _looked_at(source: Source, status: PartitionStatus, offset: int) -> PartitionStatus:
    try:
        first = await source.batch_at(TopicPartition(status.topic, status.partition), offset)
    except SourceError as error:  # a corrupt batch, or a leader that is away: the others are reported
        return status._replace(trouble=str(error))
    return told_by(status, first, int(time.time() * 1000))


def told_by(status: PartitionStatus, first: Piece | SkippedRange | None, time_ms: int) -> PartitionStatus:
    """Return the status with age and size by the first batch after the position."""
    if not isinstance(first, Piece) or status.lag is None:
        return status
    written_ms = first.header.first_timestamp
    size = status.lag * len(first.batch) // max(1, first.header.last_offset_delta + 1)
    age_s = round((time_ms - written_ms) / 1000, 1) if 0 < written_ms <= time_ms else None
    return status._replace(lag_bytes=size, estimated=True, lag_s=age_s)
