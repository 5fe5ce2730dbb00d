"""PURE. Accounts for each offset of a partition at both ends: the account that `edge-mirror audit` proves.

| source end = | offsets |
|---|---|
| mirrored | the record is at the target; or was, until its retention or a newer record of its key removed it |
| pending | from the position on, after all that is at the target; and those of transactions that have not ended |
| expired | below the log's start and below the position: mirrored before, or there was no record |
| deleted | below the log's start, before the mirror began, or by DeleteRecords (`deleted_by_request` in the ledger) |
| ledgered | others that `__edge_ledger` has |
| compacted, control, aborted | hold no record for the target |
| from target | the mirror passes them over, as they came from the target (partition/provenance.py) |
| lost, changed, unaccounted | differ (differences.py) |

| target end = | offsets |
|---|---|
| mirrored | the record is at the source; or was, until the source removed it likewise |
| target only | mirrored, by the map or the ledger, and vanished at the source: it lost its end |
| duplicates | of a record that is there once more |
| control, aborted | of any writer; a fence's markers are control |
| foreign | of other writers, or of a topic that had the name before |
| expired, compacted | the target has removed them |
| changed, unaccounted | differ |

Foreign and target only are shown, and are no differences. Without a map (none is stored, or it is of other topics),
records at the target alone count as foreign, except those that the ledger says the source has lost. Then as many
records as possible count as removed by the other end.
Does not contain: clients, clocks, how an account is shown (audit/report.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

from mirror.audit.compare.compaction_claims import Claims
from mirror.audit.compare.differences import Differences
from mirror.audit.compare.ledger_entries import DELETED_CAUSE, LedgerEntries, cut
from mirror.audit.compare.mapped_offsets import MappedOffsets
from mirror.audit.compare.matching import SIDES, Place, Side
from mirror.audit.compare.unmatched import REMEMBERED_MAX, Extras
from mirror.audit.digest.digests import COUNTED, DIGEST_BYTES, KEY_BYTES, Part, Range, split
from mirror.audit.digest.partition_facts import Facts

RANGES_REMEMBERED = 50_000
LEFT_MAX = 20_000  # records that match nothing and follow on each other, of which each is looked at

SOURCE_CLASSES = (
    "mirrored",
    "pending",
    "expired",
    "deleted",
    "ledgered",
    "compacted",
    "control",
    "aborted",
    "from_target",
)
TARGET_CLASSES = ("mirrored", "target_only", "duplicates", "control", "foreign", "expired", "compacted", "aborted")
FAULTS = ("lost", "changed", "unaccounted")


class _UnmatchedRecord(NamedTuple):
    """A record without a match."""

    offset: int
    digest: bytes


class Account:
    """The account of one partition; it receives what `match` finds, then `close`."""

    def __init__(self, source: Facts, target: Facts, *, older: Side | None = None) -> None:
        """`older`: this end was read so much earlier that the other may have records that it did not have yet."""
        self.facts: dict[Side, Facts] = {"source": source, "target": target}
        self.counts: dict[Side, Counter[str]] = {"source": Counter(), "target": Counter()}
        self.differences = Differences()
        self.compared = 0
        """Records whose digests are the same at both ends."""
        self._foreign_offsets: set[int] = set()
        self.map = MappedOffsets(source, target)
        self.position = max(source.position or 0, self.map.position)
        """Each record of the source below it was mirrored, or is in the ledger."""
        self.pending_from = self.map.position if older == "target" else self.position
        """The same for the records that were at the target when it was read."""
        self._older = older
        self._ledger = LedgerEntries(source.ledger)
        self._claims = Claims()
        self._matched_ranges: set[bytes] = set()
        self._lately: Container[bytes] = frozenset()
        self._lost: dict[bytes, int] = {}
        self._extra = Extras()
        self._leading_left, self._truncated_left = source.start, 0
        self.counts["target"]["expired"] += target.start
        self._below_start()

    def is_proven(self, *, may_double: bool = False) -> bool:
        """Whether both accounts add up, and nothing differs."""
        counts = self.differences.counts
        return not any(count for kind, count in counts.items() if not (may_double and kind == "doubled"))

    def close(self) -> None:
        """Resolve open claims and add up, once both ends were read."""
        for offset in self._claims.wrong("source"):
            self.counts["source"]["mirrored"] -= 1
            self.counts["source"]["lost"] += 1
            self.differences.add("lost", offset, None, 1)
        for offset in self._claims.wrong("target"):
            self.counts["target"]["mirrored"] -= 1
            self._foreign(offset, 1)
        for side in SIDES:
            self._add_up(side)
        self.differences.close()
        self._release_details()

    def _release_details(self) -> None:
        """Keep only what the report shows: there may be thousands of partitions."""
        self.facts = {side: facts._replace(ledger=(), state=None) for side, facts in self.facts.items()}
        self.map.release()
        self._claims, self._ledger = Claims(), LedgerEntries(())
        self._foreign_offsets = set(sorted(self._foreign_offsets)[:1])
        self._matched_ranges, self._lately = set(), frozenset()
        self._lost, self._extra = {}, Extras()

    def _add_up(self, side: Side) -> None:
        counted, end = sum(self.counts[side].values()), self.facts[side].end
        if counted != end:
            self.counts[side]["unaccounted"] += end - counted
            self.differences.add("unaccounted", end if side == "source" else None, end if side == "target" else None, 0)

    # offsets without a record

    def _below_start(self) -> None:
        """Account for the offsets below the source's start."""
        counts, start = self.counts["source"], self.facts["source"].start
        for first, end in cut(0, start, [self.position, self.map.began, *self._ledger.bounds]):
            cause = self._ledger.cause_of_gone(first)
            if cause == DELETED_CAUSE or first < self.map.began:
                counts["deleted"] += end - first
            elif cause and not self.map.has_source(first):
                counts["ledgered"] += end - first
            elif first < self.position:
                counts["expired"] += end - first
            else:
                counts["unaccounted"] += end - first
                self.differences.add("unaccounted", first, None, end - first)

    def range_passed(self, side: Side, one: Range) -> None:
        """Count offsets without a record."""
        counts = self.counts[side]
        for kind, count in zip(COUNTED, one.counts, strict=True):
            counts[kind] += count
        for first, end, kind in one.holes:
            if side == "target":
                self._hole_at_target(first, end, kind)
            elif kind == "open":
                counts["pending"] += end - first
            else:
                self._hole_at_source(first, end)

    def is_gone(self, side: Side, one: Range) -> bool:
        """Return whether the other end has removed all of this range, by the map."""
        if not self.map.is_known:
            return False
        if side == "source":
            return one.last < self._kept_from(Place())
        [(_, _, source)] = self.map.sources(one.last, 1)
        return source is not None and source < self.facts["source"].start

    def lacks_begin(self, side: Side) -> bool:
        """Return whether an end has removed the start of its log."""
        return self.facts[side].start > 0

    def _hole_at_source(self, first: int, end: int) -> None:
        counts = self.counts["source"]
        for low, high in cut(first, end, [self.position, *self._ledger.bounds]):
            if self._ledger.cause_of_gone(low):
                counts["ledgered"] += high - low
            elif self.facts["source"].is_compacted:
                counts["compacted"] += high - low
            elif low >= self.position:
                counts["pending"] += high - low
            else:
                counts["unaccounted"] += high - low
                self.differences.add("unaccounted", low, None, high - low)

    def _hole_at_target(self, first: int, end: int, kind: str) -> None:
        counts = self.counts["target"]
        if kind == "open":
            counts["foreign"] += end - first
        elif kind == "gone":
            counts["expired"] += end - first
        elif self.facts["target"].is_compacted:
            counts["compacted"] += end - first
        else:
            counts["unaccounted"] += end - first
            self.differences.add("unaccounted", None, first, end - first)

    def has_matched(self, one: Range) -> bool:
        """Return whether a range with the same records was matched before."""
        return one.digest in self._matched_ranges

    def same(self, source: Part, target: Part) -> None:
        """Count records that are the same ones at both ends."""
        count = source.records
        self.compared += count
        self.counts["source"]["mirrored"] += count
        self.counts["target"]["mirrored"] += count
        for here, there, misplaced in self.map.misplaced_runs(source, target):
            self.differences.add("misplaced", here, there, misplaced)
        if source.whole is not None and len(self._matched_ranges) < RANGES_REMEMBERED:
            self._matched_ranges.add(source.whole)
        self._meet(source if source.digests is not None else target)
        self._claims.resolve("source", source)
        self._claims.resolve("target", target)

    # records without a match

    def gap(self, source: Sequence[Part], target: Sequence[Part], place: Place, lately: Container[bytes]) -> None:
        """Classify the records between two matches; `lately` are the digests of records that were matched before."""
        self._lately = lately
        is_pending = place.is_last and bool(source) and source[0].first >= self.pending_from  # it is not there yet
        if source and target and not is_pending and not (_have_digests(source) and _have_digests(target)):
            self._count_unresolved(source, target)
            return
        behind = target[-1].end if target else place.target
        self._truncated_left = 0 if self.map.is_known else self._ledger.truncated_at(place.source)
        lost = [one for some in source for one in self._left_at_source(some, place, behind)]
        extra = [one for some in target for one in self._left_at_target(some, place)]
        for some in source:
            self._claims.resolve("source", some)
        for some in target:
            self._claims.resolve("target", some)
        lost = [one for one in lost if not self._has_moved(one)]
        for one, other in zip(lost, extra, strict=False):
            self.differences.add("changed", one.offset, other.offset, 1)
            self.counts["source"]["changed"] += 1
            self.counts["target"]["changed"] += 1
        paired = min(len(lost), len(extra))
        for one in lost[paired:]:
            self.counts["source"]["lost"] += 1
            if len(self._lost) < REMEMBERED_MAX:
                self._lost[one.digest] = one.offset
        for first, count in _runs(lost[paired:]):
            self.differences.add("lost", first, None, count)
        for one in extra[paired:]:
            self._foreign(one.offset, 1)
            self._extra.add(one.digest, one.offset, "foreign")

    def _count_unresolved(self, source: Sequence[Part], target: Sequence[Part]) -> None:
        counts = {"source": sum(one.records for one in source), "target": sum(one.records for one in target)}
        self.counts["source"]["unaccounted"] += counts["source"]
        self.counts["target"]["unaccounted"] += counts["target"]
        self.differences.add("unresolved", source[0].first, target[0].first, max(counts.values()))

    def _left_at_source(self, some: Part, place: Place, later_from: int) -> Iterator[_UnmatchedRecord]:
        """Count records that may be missing at the target, and return those that are; later ones start at `later_from`.

        If the topic compacts, records left at the target in the same gap may be older. If one were newer, the source
        would have one that is newer still.
        """
        counts, kept_from = self.counts["source"], self._kept_from(place)
        pending_from = self.pending_from if place.is_last else self.facts["source"].end
        at = 0
        for first, count in some.runs:
            for low, high in cut(first, first + count, [pending_from, kept_from, *self._ledger.bounds]):
                size = high - low
                number, at = at, at + size
                if self._ledger.has_record(low):
                    counts["ledgered"] += size
                elif low < kept_from:
                    counts["mirrored"] += size
                elif low >= pending_from:
                    counts["pending"] += size
                elif self.facts["target"].is_compacted and some.keys is not None:
                    yield from self._claim("source", some, number, low, high, later_from)
                elif some.digests is None or size > LEFT_MAX:
                    counts["lost"] += size
                    self.differences.add("lost", low, None, size)
                else:
                    yield from _lefts(some, number, low, high)

    def _kept_from(self, place: Place) -> int:
        """Return the source offset below which the target's retention may have removed mirrored records."""
        start = self.facts["target"].start
        if not start:
            return 0
        if self.map.is_known:
            return self.map.source_of(start)
        return self.position if place.is_first else 0

    def _left_at_target(self, some: Part, place: Place) -> Iterator[_UnmatchedRecord]:
        """Count records that only the target has, and return those that may stand in another record's place."""
        at = 0
        if some.whole in self._matched_ranges:
            self._count_doubled(some.first, some.records)
            return
        for first, count in some.runs:
            for low, size, source in self.map.sources(first, count):
                number, at = at, at + size
                passed = self._gone_at_source(low, size, source, place)
                if passed < size:
                    here = None if source is None else source + passed
                    yield from self._classify_at_target(some, number + passed, low + passed, size - passed, here, place)

    def _gone_at_source(self, low: int, size: int, source: int | None, place: Place) -> int:
        """Count how many of the first were mirrored, and are not at the source any more, or not yet."""
        facts, gone = self.facts["source"], 0
        if source is not None:
            is_newer = source >= facts.end and self._older == "source"
            gone = size if is_newer else min(size, max(0, facts.start - source))
        elif place.is_first and not self.map.knows(low):
            gone = min(size, self._leading_left)
            self._leading_left -= gone
        self.counts["target"]["mirrored"] += gone
        return gone

    def _classify_at_target(
        self, some: Part, number: int, low: int, size: int, source: int | None, place: Place
    ) -> Iterator[_UnmatchedRecord]:
        if self.facts["source"].is_compacted and some.keys is not None:
            for one in self._claim("target", some, number, low, low + size, place.source):
                yield from self._strange(one)
        elif some.digests is None or size > LEFT_MAX:
            for offset in range(low, low + size):
                if self._has_vanished(offset):
                    self.counts["target"]["target_only"] += 1
                else:
                    self._foreign(offset, 1)
        else:
            for one in _lefts(some, number, low, low + size):
                yield from self._strange(one)

    def _has_vanished(self, target_offset: int) -> bool:
        return self.map.has_vanished(target_offset, self.facts["source"].end)

    def _strange(self, one: _UnmatchedRecord) -> Iterator[_UnmatchedRecord]:
        """Classify a record at the target that the source does not have there."""
        if one.digest in self._lost:
            offset = self._lost.pop(one.digest)
            self.counts["source"]["lost"] -= 1
            self.differences.remove("lost", offset)
            self._count_moved(offset, one.offset)
        elif one.digest in self._lately:
            self._count_doubled(one.offset, 1)
            self._extra.add(one.digest, one.offset, "duplicates")
        elif self._truncated_left:
            self._truncated_left -= 1
            self.counts["target"]["target_only"] += 1
        elif self._has_vanished(one.offset):
            self.counts["target"]["target_only"] += 1
        elif self.map.knows(one.offset) and not self.map.has_target(one.offset):
            self._foreign(one.offset, 1)
        else:
            yield one

    def _has_moved(self, one: _UnmatchedRecord) -> bool:
        found = self._extra.pop(one.digest)
        if found is None:
            return False
        offset, kind = found
        self._uncount(offset, kind)
        self._count_moved(one.offset, offset)
        return True

    def _uncount(self, target_offset: int, kind: str) -> None:
        self.counts["target"][kind] -= 1
        if kind == "duplicates":
            self.differences.remove("doubled", target_offset)
        else:
            self._foreign_offsets.discard(target_offset)

    def _meet(self, some: Part) -> None:
        """Count records as duplicates that counted as foreign and match now: the target had them before."""
        for digest in split(some.digests or b"") if self._extra.foreign else ():
            for offset in self._extra.pop_foreign(digest):
                self._uncount(offset, "foreign")
                self._count_doubled(offset, 1)
                self._extra.add(digest, offset, "duplicates")

    def _count_moved(self, source_offset: int, target_offset: int) -> None:
        self.counts["source"]["mirrored"] += 1
        self.counts["target"]["mirrored"] += 1
        self.differences.add("moved", source_offset, target_offset, 1)

    def _count_doubled(self, target_offset: int, records: int) -> None:
        self.counts["target"]["duplicates"] += records
        self.differences.add("doubled", None, target_offset, records)

    def _foreign(self, target_offset: int, records: int) -> None:
        self.counts["target"]["foreign"] += records
        if len(self._foreign_offsets) < REMEMBERED_MAX:
            self._foreign_offsets.add(target_offset)

    @property
    def foreign_from(self) -> int | None:
        """The first target offset of a foreign record."""
        return min(self._foreign_offsets, default=None)

    # records that compaction has removed

    def _claim(
        self, side: Side, some: Part, number: int, low: int, high: int, bound: int
    ) -> Iterator[_UnmatchedRecord]:
        """Claim that compaction removed each, as a newer record of its key follows; return those that cannot be."""
        assert some.keys is not None
        keys = split(some.keys[number * KEY_BYTES : (number + high - low) * KEY_BYTES], KEY_BYTES)
        for one, key in zip(_lefts(some, number, low, high), keys, strict=True):
            if self._claims.make(side, key, one.offset, bound):
                self.counts[side]["mirrored"] += 1
            else:
                yield one


class AuditResult(NamedTuple):
    """The accounts of an audit, and remarks for a person.

    `one_sided` are partitions that the target alone has. `unread` are partitions that an end cannot read now, or could
    not read to the end.
    """

    accounts: list[Account]
    one_sided: list[Facts]
    remarks: list[str]
    unread: list[Facts]

    def is_proven(self, *, may_double: bool) -> bool:
        """Return whether all partitions were audited, and nothing differs."""
        return not self.unread and all(account.is_proven(may_double=may_double) for account in self.accounts)


def _have_digests(parts: Sequence[Part]) -> bool:
    return all(one.digests is not None for one in parts)


def _lefts(some: Part, place: int, low: int, high: int) -> Iterator[_UnmatchedRecord]:
    """Return the records at offsets in [low, high), which are consecutive; `place` is the first one's in the part."""
    digests = some.digests or bytes(DIGEST_BYTES * some.records)
    for number, offset in enumerate(range(low, high), place):
        yield _UnmatchedRecord(offset, digests[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES])


def _runs(lefts: Sequence[_UnmatchedRecord]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for one in lefts:
        if runs and sum(runs[-1]) == one.offset:
            runs[-1] = runs[-1][0], runs[-1][1] + 1
        else:
            runs.append((one.offset, 1))
    return runs
