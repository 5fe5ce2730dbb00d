"""Where a lane begins that has a position in the source's group, and no state at the target.

So it is for a mirror of a version before there was a state topic (up to 56f8dfa), and where the state topic was lost.
What was sent behind the committed position lies at the target behind the end that the commit tells, in the source's
order, perhaps several times: both are read, and what is there counts as mirrored.

    source   40 41 42 43 44 45 46     committed: offset 40, the target's end 90, sent twice
    target   90: 40  91: 41  92: 40  93: 41  94: 42  95: somebody else's      so 43 is next

Of records that are the same in all, where more than one life has sent, nobody can tell how many arrived: they are sent
again. Must never come in: what else is done with a position (position_check.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from drupelet.observe.log_tree import Log
from kafka_wire.partitions import TopicPartition
from mirror.client.log_queries import Asking, Content
from mirror.client.source_client import Source
from mirror.client.target_client import Target
from mirror.partition.source_offsets import Commit
from mirror.partition.stream import PartitionStream

_log = Log("mirror")

WINDOW, WINDOW_MAX = 20_000, 200_000  # records that are read of either end: a former version promised 10,000 at a time


async def mirrored_up_to(source: Source, target: Target, lane: PartitionStream, commit: Commit, target_end: int) -> int:
    """Return the source's offset of the first record behind the commit that is not at the target, which ends there.

    Raises SourceError, TargetError.
    """
    window = min(WINDOW_MAX, max(WINDOW, (commit.sent_up_to - commit.offset) * commit.sent_times))
    begin = max(0, target_end - window) if commit.target_end is None else commit.target_end
    if begin >= target_end:
        return commit.offset
    places: dict[int, list[int]] = {}  # of each content's hash
    async for offset, content in _contents(source, lane.partition, commit.offset, window):
        places.setdefault(hash(content), []).append(offset)
    at = commit.offset
    async for _, content in _contents(target, lane.at_target, begin, window):
        found = places.get(hash(content), ())
        if len(found) == 1 or commit.sent_times == 1:
            at = next((offset + 1 for offset in found if offset >= at), at)
    _log.info("taken_over", **lane.fields(), position=commit.offset, offset=at)
    return at


async def _contents(
    end: Asking, partition: TopicPartition, offset: int, records_max: int
) -> AsyncIterator[tuple[int, Content]]:
    """The records from an offset on, so many at most."""
    until = offset + records_max
    while offset < until:
        found = await end.contents_from(partition, offset)
        if found is None:
            return
        for one in found.records:
            yield one
        offset = found.end_offset
