"""PURE. Collects the differences between the ends of a partition, joined to runs.

| difference | meaning |
|---|---|
| lost | at the source, below the position or before a record that is at the target, and not at the target |
| changed | the target has another record in its place: by the map, or, without one, between the same neighbours |
| moved | at the target, at another place in the order |
| doubled | at the target twice |
| unaccounted | no batch has these offsets, nothing explains them, and the ledger does not have them |
| misplaced | the map has another place than where the record is |
| unresolved | the ranges differ, and the digests of each record were not sent: `--each` |

Does not contain: causes, how a difference is shown (audit/report.py).
"""

from __future__ import annotations

from collections import Counter
from typing import Literal, NamedTuple

TOLD_MAX = 100

Kind = Literal["lost", "changed", "moved", "doubled", "unaccounted", "misplaced", "unresolved"]


class Difference(NamedTuple):
    """A run of so many records from these offsets on; None if an end has none of them, or it is not known.

    `parts` are those of the first changed record, if they could be read: key, value, headers, timestamp.
    """

    kind: Kind
    source_offset: int | None
    target_offset: int | None
    records: int
    parts: tuple[str, ...] = ()


class Differences:
    """The differences of one partition: `counts` records of each kind, `told` at most TOLD_MAX runs."""

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

    def remove(self, kind: Kind, offset: int) -> None:
        """Remove one record that counted as lost or doubled, and is of another kind."""
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
        """Sort the runs by the source's offset; those that the target alone has come last."""
        self.told.sort(key=_order)


def _follows(last: Difference, source: int | None, target: int | None) -> bool:
    pairs = ((last.source_offset, source), (last.target_offset, target))
    return all((old is None) == (new is None) and (old is None or old + last.records == new) for old, new in pairs)


def _order(one: Difference) -> tuple[int, int]:
    return (0, one.source_offset) if one.source_offset is not None else (1, one.target_offset or 0)
