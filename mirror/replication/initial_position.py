"""Finds the source's offset at which a stream starts that has no state at the target.

With a position in the group but no state topic (lost, or of a version up to 56f8dfa), both ends are read. The records
sent after the committed position lie at the target after the end that the commit names, in the source's order, perhaps
several times. Those that are found there count as mirrored.

    source   40 41 42 43 44 45 46     committed: offset 40, the target's end 90, sent twice
    target   90: 40  91: 41  92: 40  93: 41  94: 42  95: another writer's     so 43 is next

If several sessions sent records that are equal in all, their number at the target is unknown: they are sent again.
Does not contain: checks of a position before it is read (position_check.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from drupelet.observe.log_tree import Log
from kafka_wire.partitions import TopicPartition
from mirror.client.log_queries import Asking, Content
from mirror.client.source_client import Source
from mirror.client.target_client import Target
from mirror.partition.resume_rules import ResumePoint
from mirror.partition.source_offsets import Commit
from mirror.partition.stream import PartitionStream
from mirror.replication.loss_writer import LossWriter

_log = Log("mirror")

WINDOW, WINDOW_MAX = 20_000, 200_000  # records read of either end: an older version promised 10,000 at a time


class InitialPosition:
    """Finds the initial positions of one mirror's streams."""

    def __init__(self, source: Source, target: Target, losses: LossWriter) -> None:
        self._source, self._target, self._losses = source, target, losses

    async def find(self, stream: PartitionStream, resumed: ResumePoint, target_end: int) -> int:
        """Return the source's offset at which a stream without state starts: the group's position, or the log's start.

        `resumed` is the verdict on its state, `target_end` the target's end offset. Raises SourceError, TargetError.
        """
        if stream.state is None and stream.set_by_hand is not None:
            return stream.set_by_hand
        if resumed.verdict == "source_anew" and not stream.starts_anew:
            _log.warning("topic_recreated", **stream.fields(), acked=stream.offsets.acked, topic_id=stream.topic_id)
            if stream.offsets.topic_id is not None and stream.offsets.topic_id == stream.topic_id:
                return stream.offsets.acked  # of this very log: its present start may be higher, which is a gap then
            commit = (await self._source.commits([stream.partition])).get(stream.partition)
            if commit is not None and commit.topic_id is not None and commit.topic_id == stream.topic_id:
                return commit.offset  # another mirror has started it meanwhile
        if resumed.verdict != "position":
            return await self._log_start(stream, resumed)
        if stream.commit is None:
            return stream.offsets.acked
        return await mirrored_up_to(self._source, self._target, stream, stream.commit, target_end)

    async def _log_start(self, stream: PartitionStream, resumed: ResumePoint) -> int:
        starts, _ = await self._source.bounds([stream.partition])
        is_known = stream.state is not None or stream.commit is not None
        start, mirrored = starts[stream.partition], stream.offsets.acked if is_known else resumed.source_offset
        if resumed.verdict == "target_anew" and mirrored < start:
            await self._losses.write_loss(stream, "source_offset_out_of_range", mirrored, start)
        return start


async def mirrored_up_to(
    source: Source, target: Target, stream: PartitionStream, commit: Commit, target_end: int
) -> int:
    """Return the source's offset of the first record after the commit that the target, ending at `target_end`, lacks.

    Raises SourceError, TargetError.
    """
    window = min(WINDOW_MAX, max(WINDOW, (commit.sent_up_to - commit.offset) * commit.sent_times))
    begin = max(0, target_end - window) if commit.target_end is None else commit.target_end
    if begin >= target_end:
        return commit.offset
    places: dict[int, list[int]] = {}  # of each content's hash
    async for offset, content in _contents(source, stream.partition, commit.offset, window):
        places.setdefault(hash(content), []).append(offset)
    at = commit.offset
    async for _, content in _contents(target, stream.at_target, begin, window):
        found = places.get(hash(content), ())
        if len(found) == 1 or commit.sent_times == 1:
            at = next((offset + 1 for offset in found if offset >= at), at)
    _log.info("position_taken_over", **stream.fields(), position=commit.offset, offset=at)
    return at


async def _contents(
    end: Asking, partition: TopicPartition, offset: int, records_max: int
) -> AsyncIterator[tuple[int, Content]]:
    """Return the records of `records_max` offsets from an offset on."""
    until = offset + records_max
    while offset < until:
        found = await end.contents_from(partition, offset)
        if found is None:
            return
        for one in found.records:
            yield one
        offset = found.end_offset
