"""Reads which topics of the target MirrorMaker 2 mirrors, by the keys of its offset syncs there.

It reads on from its last place, and no more than ANSWERS_MAX responses of ANSWER_BYTES_MAX at once, as that crosses the
link. Until it has reached the end (`is_whole`), a topic may be among them without being known.
Does not contain: when that matters (topics/mirrormaker.py, screening.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kafka_wire.partitions import TopicPartition
from mirror.client.target_client import Target
from mirror.topics.mirrormaker import topic_of_sync

ANSWER_BYTES_MAX = 256 * 1024
ANSWERS_MAX = 16


class OffsetSyncs:
    """The offset syncs of one target; `topics` are those that some sync has named."""

    def __init__(self, target: Callable[[], Target]) -> None:
        self.topics: set[str] = set()
        self.is_whole = False
        self._target = target
        self._offsets: dict[TopicPartition, int] = {}

    async def read(self, names: Iterable[str]) -> None:
        """Read on in these topics of offset syncs; raises TargetError, also if they may not be read."""
        partitions = [TopicPartition(name, 0) for name in names]
        starts, ends = await self._target().bounds(partitions)
        answers = 0
        for partition in partitions:
            offset = self._offsets.get(partition, 0)
            if not starts[partition] <= offset <= ends[partition]:  # deleted by retention, or the topic was made again
                offset = starts[partition]
            while offset < ends[partition] and answers < ANSWERS_MAX:
                keys, offset = await self._target().keys_from(partition, offset, ANSWER_BYTES_MAX)
                self.topics |= {name for name in map(topic_of_sync, keys) if name is not None}
                answers += 1
            self._offsets[partition] = offset
        self.is_whole = all(self._offsets[one] >= ends[one] for one in partitions)
