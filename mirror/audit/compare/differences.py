"""PURE. What differs between the ends of a partition, put together to runs.

| difference | what it says |
|---|---|
| lost | at the source, below the position or before what is at the target, and not there |
| changed | at its place at the target is another: by the map, or, without one, between the same neighbours |
| moved | it is at the target, at another place in the order |
| doubled | it is at the target twice |
| unaccounted | no batch has these offsets, nothing tells why, and the ledger does not have them |
| misplaced | the map says another place than where the record is |
| unresolved | the ranges differ, and the digests of each record were not told: `--each` |

Must never come in: why that is so, and how it is shown.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal, NamedTuple

TOLD_MAX = 100

Kind = Literal["lost", "changed", "moved", "doubled", "unaccounted", "misplaced", "unresolved"]


class Difference(NamedTuple):
    """What differs: so many records from these offsets on; None where an end has nothing of it, or it is not known.

    `parts` are those of the first record that is changed, where that could be asked: key, value, headers, timestamp.
    """

    kind: Kind
    source_offset: int | None
    target_offset: int | None
    records: int
    parts: tuple[str, ...] = ()


class Differences:
    """Those of one partition: `counts` records of each kind, `told` at most TOLD_MAX runs."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.told: list[Difference] = []

    def add(self, kind: Kind, source: int | None, target: int | None, records: int) -> None:
        """Note a run; an account that does not add up has none."""
        self.counts[kind] += max(1, records)
        last = self.told[-1] if self.told else None
        if last is not None and last.kind == kind and _follows(last, source, target):
            self.told[-1] = last._replace(records=last.records + records)
        elif len(self.told) < TOLD_MAX:
            self.told.append(Difference(kind, source, target, records))

    def take_back(self, kind: Kind, offset: int) -> None:
        """Take one record back, lost or doubled, that was told of and is another kind's."""
        self.counts[kind] -= 1
        is_lost = kind == "lost"
        for at, one in enumerate(self.told):
            first = one.source_offset if is_lost else one.target_offset
            if one.kind == kind and first is not None and first <= offset < first + one.records:
                left = ((first, offset - first), (offset + 1, first + one.records - offset - 1))
                self.told[at : at + 1] = [
                    Difference(kind, begin if is_lost else None, None if is_lost else begin, count)
                    for begin, count in left
                    if count
                ]
                return

    def close(self) -> None:
        """Put them in order by the source's offset; those that the target alone has come last."""
        self.told.sort(key=_order)


def _follows(last: Difference, source: int | None, target: int | None) -> bool:
    pairs = ((last.source_offset, source), (last.target_offset, target))
    return all((old is None) == (new is None) and (old is None or old + last.records == new) for old, new in pairs)


def _order(one: Difference) -> tuple[int, int]:
    return (0, one.source_offset) if one.source_offset is not None else (1, one.target_offset or 0)
