"""PURE. Queries the exact offset map (partition/offset_map.py) for an audit: offsets of either end.

Does not contain: what an answer means for the account (account.py).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter

from mirror.audit.digest.digests import Part, Run
from mirror.audit.digest.partition_facts import Facts
from mirror.partition.offset_map import OffsetMap

_target_offset = attrgetter("target_offset")


class MappedOffsets:
    """The map of a partition if it is of these two topics; else it knows nothing."""

    def __init__(self, source: Facts, target: Facts) -> None:
        known = _map_of(source, target)
        self.is_known = known is not None and bool(known.steps)
        self._map = known if known is not None and known.steps else None
        self.position = known.end.source_offset if known else 0
        steps = known.steps if known else []
        self.began = steps[0].source_offset if steps and not steps[0].records else 0
        """The source's offset at which the mirror began; 0 if that is not known any more."""

    def release(self) -> None:
        """Forget the steps."""
        self._map = None

    def knows(self, target_offset: int) -> bool:
        """Return whether the map reaches that far."""
        return self._map is not None and target_offset < self._map.end.target_offset

    def has_source(self, source_offset: int) -> bool:
        """Return whether that record was mirrored."""
        found = self._map.to_target(source_offset) if self._map else None
        return found is not None and found.is_record

    def has_target(self, target_offset: int) -> bool:
        """Return whether a record of the source was mirrored there."""
        found = self._map.to_source(target_offset) if self._map else None
        return found is not None and found.is_record

    def source_of(self, target_offset: int) -> int:
        """Return the first source offset whose record is there or after; past the map's end, the source's end in it."""
        assert self._map is not None
        if target_offset >= self._map.end.target_offset:
            return self._map.end.source_offset
        found = self._map.to_source(target_offset)
        return 0 if found is None else found.offset

    def has_vanished(self, target_offset: int, source_end: int) -> bool:
        """Return whether the record there was mirrored from an offset where the source now has another, or none."""
        found = self._map.to_source(target_offset) if self._map else None
        if self._map is None or found is None or not found.is_record:
            return False
        again = self._map.to_target(found.offset)
        return again is None or again.offset != target_offset or found.offset >= source_end

    def misplaced_runs(self, source: Part, target: Part) -> Iterator[tuple[int, int, int]]:
        """Return runs of records, the same at both ends, that the map has elsewhere: the first offsets, the count."""
        for here, there, count in together(source.runs, target.runs) if self._map else ():
            if not (self._agrees(here, there) and self._agrees(here + count - 1, there + count - 1)):
                yield here, there, count

    def _agrees(self, source: int, target: int) -> bool:
        assert self._map is not None
        if not self.knows(target):
            return True
        found = self._map.to_source(target)
        return source < self._map.steps[0].source_offset if found is None else found == (source, True)

    def sources(self, first: int, count: int) -> Iterator[tuple[int, int, int | None]]:
        """Return runs of target offsets: the first, the count, and the first source offset, None if from no record."""
        while count:
            source, size = self._piece(first, count) if self._map else (None, count)
            yield first, size, source
            first, count = first + size, count - size

    def _piece(self, first: int, count: int) -> tuple[int | None, int]:
        assert self._map is not None
        steps, end = self._map.steps, self._map.end
        at = bisect_right(steps, first, key=_target_offset) - 1
        if at < 0:
            return None, min(count, steps[0].target_offset - first)
        step, beyond = steps[at], steps[at + 1] if at + 1 < len(steps) else end
        passed = first - step.target_offset
        left = min(beyond.records, end.records) - step.records - passed
        if left > 0:
            return step.source_offset + passed, min(count, left)
        return None, count if beyond is end else min(count, beyond.target_offset - first)


def _map_of(source: Facts, target: Facts) -> OffsetMap | None:
    if target.state is None:
        return None
    topics = target.state.head.topics
    for known, now in ((topics.source_id, source.topic_id), (topics.target_id, target.topic_id)):
        if known is not None and now is not None and known != now:
            return None
    return OffsetMap(target.state.steps, target.state.head.end)


def together(source: Sequence[Run], target: Sequence[Run]) -> Iterator[tuple[int, int, int]]:
    """Return the same records at both ends in runs of both: the first offsets, and the count."""
    sources, targets = list(source[::-1]), list(target[::-1])
    while sources and targets:
        (here, size), (there, also) = sources.pop(), targets.pop()
        count = min(size, also)
        yield here, there, count
        if size > count:
            sources.append((here + count, size - count))
        if also > count:
            targets.append((there + count, also - count))
