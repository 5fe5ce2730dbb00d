"""PURE. Maps each record of a source partition to its place at the target, exact for every offset: one step per gap.

    source   100 101 102  --- 105 106        103, 104: a marker, or compacted; nothing of them is at the target
    target   500 501 502 503 504 505 ---     503: another writer's; then a fence's marker
    records    0   1   2   3   4             how many were mirrored before

| step | records | source_offset | source_epoch | target_offset | why |
|---|---|---|---|---|---|
| 1 | 0 | 100 | 7 | 500 | the first |
| 2 | 3 | 105 | 7 | 504 | offsets are missing at either end |
| 3 | 5 | 107 | 8 | 506 | the source has another leader epoch: the same offset could be another record |

From a step on, all three numbers run together until the next one; `end` is the end of the safe records at the target.
Steps at or after it are promised: their records are, or will be, in flight, and their target offsets are expected.
Does not contain: clients, clocks, chance, the use of a step in a session (target_state.py).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple


class Step(NamedTuple):
    """A record from which on the three numbers run together."""

    records: int
    source_offset: int
    source_epoch: int
    target_offset: int


class End(NamedTuple):
    """Exclusive ends of the records that are safe at the target; `source_offset` is past records that are not sent."""

    records: int
    source_offset: int
    target_offset: int


class OffsetAtOtherEnd(NamedTuple):
    """An offset at the other end: the record's, or, if there is none, the next one's (`is_record` is false)."""

    offset: int
    is_record: bool


_records = attrgetter("records")
_source = attrgetter("source_offset")
_target = attrgetter("target_offset")


class OffsetMap:
    """The steps of one partition, or the last of them; every number of a step is above that of the one before.

    Source offsets alone may go back, under a higher epoch, if the source lost its end. Else ValueError is raised.
    """

    def __init__(self, steps: Iterable[Step], end: End) -> None:
        self.steps: list[Step] = []
        self.end = end
        for step in steps:
            self._append(step)

    def _append(self, step: Step) -> None:
        if self.steps:
            last = self.steps[-1]
            records = step.records - last.records
            sources, targets = step.source_offset - last.source_offset, step.target_offset - last.target_offset
            is_other_log = step.source_epoch < 0 or step.source_epoch > last.source_epoch
            if not (0 < records <= targets and (records <= sources or is_other_log)):
                raise ValueError(f"Step {step} cannot follow {last}.")
        self.steps.append(step)

    def place_of(self, records: int) -> Step | None:
        """Return the place of the record after so many mirrored ones, as its own step; None below all steps."""
        index = bisect_right(self.steps, records, key=_records) - 1
        return None if index < 0 else _shift(self.steps[index], records)

    def continues(self, step: Step) -> bool:
        """Return whether the steps already have this place."""
        return self.place_of(step.records) == step

    def is_promised(self, step: Step, count: int) -> bool:
        """Return whether the steps have `count` records from there on, at any target offsets."""
        here = self.place_of(step.records)
        there = self.place_of(step.records + count - 1)
        return (
            here is not None
            and there is not None
            and here[:3] == step[:3]
            and there[:3] == _shift(step, step.records + count - 1)[:3]
        )

    def add(self, step: Step) -> bool:
        """Add a step; return False if the steps already have it. ValueError if it cannot follow."""
        if self.continues(step):
            return False
        if self.steps and self.steps[-1].records >= step.records:
            raise ValueError(f"Step {step} comes before {self.steps[-1]}.")
        self._append(step)
        return True

    def cut(self, records: int) -> None:
        """Forget the steps of all records but the first so many; the safe end goes no further."""
        kept = bisect_right(self.steps, records - 1, key=_records)
        del self.steps[kept:]

    def shift(self, records: int, target_offset: int) -> bool:
        """Set the record's real target offset, and shift the following ones; return False if it is the expected one.

        ValueError if it lies below the records that are known to be safe before it.
        """
        place = self.place_of(records)
        assert place is not None, "only what has a place can be shifted"
        by = target_offset - place.target_offset
        if not by:
            return False
        index = bisect_right(self.steps, records - 1, key=_records)
        later = [step._replace(target_offset=step.target_offset + by) for step in self.steps[index:]]
        if not later or later[0].records > records:
            later.insert(0, place._replace(target_offset=target_offset))
        OffsetMap([*self.steps[max(0, index - 1) : index], *later], self.end)
        self.steps[index:] = later
        return True

    def to_target(self, source_offset: int) -> OffsetAtOtherEnd | None:
        """Return a source offset's place at the target; None if it is below the steps held, or not yet safe there.

        If two records had one offset, in two epochs, it is the last one's.
        """
        return self._across(source_offset, _source, _target)

    def to_source(self, target_offset: int) -> OffsetAtOtherEnd | None:
        """Return the source's offset of the record at a target offset; None as for `to_target`."""
        return self._across(target_offset, _target, _source)

    def _across(self, offset: int, here: attrgetter[int], there: attrgetter[int]) -> OffsetAtOtherEnd | None:
        if offset >= here(self.end):
            return OffsetAtOtherEnd(there(self.end), False) if offset == here(self.end) else None
        safe = bisect_right(self.steps, self.end.records - 1, key=_records)
        index = self._last_at(safe, offset, here)
        if index < 0:
            return None
        step, beyond = self.steps[index], self.steps[index + 1] if index + 1 < safe else self.end
        passed = offset - here(step)
        if passed < beyond.records - step.records:
            return OffsetAtOtherEnd(there(step) + passed, True)
        return OffsetAtOtherEnd(there(beyond), False)

    def _last_at(self, safe: int, offset: int, here: attrgetter[int]) -> int:
        """Return the last safe step that begins at or below an offset; source offsets fall after a truncation."""
        if here is _target:
            return bisect_right(self.steps, offset, hi=safe, key=here) - 1
        return next((index for index in range(safe - 1, -1, -1) if here(self.steps[index]) <= offset), -1)


def _shift(step: Step, records: int) -> Step:
    by = records - step.records
    return Step(records, step.source_offset + by, step.source_epoch, step.target_offset + by)
