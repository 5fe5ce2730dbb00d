"""The account of a partition's offsets: log end = available + compacted away + control + expired + deleted + ledgered.

| offsets | count as |
|---|---|
| of a batch that is there | available or control, as many as it has records; the rest is compacted away |
| between batches of a compacted topic | compacted away |
| of a line of `removed-offsets` | control and compacted away as it says, the rest expired, deleted or ledgered |
| of a corrupt range | ledgered |
| of anything else | unaccounted |

Every offset from 0 to the end must be in exactly one row, and what is ledgered must be what the ledger says, by cause.
Damage that compaction or a removal took away later stays ledgered. A crash between the ledger's record of a removal and
the removal leaves a record of more than was lost: that is remarked and no problem, as the next removal writes it again.

Contains: sets of intervals, pure. Does not contain: files. Source: the design's sentence on the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from drupelet.quantities import is_or_are, quantity_text
from edge_broker.storage.log.removed_offsets import FORWARDED

DAMAGED = "damaged"
DELETED, BY_REQUEST = ("deleted", FORWARDED), "deleted_by_request"
ANNOUNCED = frozenset({"evicted", "expired_unpassed", BY_REQUEST})  # the ledger has them before anything goes


class Span(NamedTuple):
    """Offsets [first, end)."""

    first: int
    end: int

    def __str__(self) -> str:
        return f"{self.first} to {self.end - 1}"


class KnownLoss(NamedTuple):
    """A loss that a log shows or the ledger names; `id` of the ledger's record."""

    cause: str
    first: int
    end: int
    id: str = ""

    @property
    def span(self) -> Span:
        """Its offsets."""
        return Span(self.first, self.end)


class _Line:
    """A line of `removed-offsets`, and what is left of its counts once earlier damage was taken out of them."""

    def __init__(self, known: KnownLoss, compacted: int, *, loss: bool) -> None:
        self.known = known
        self.compacted = compacted
        self.loss = loss


class Account:
    """The count of one partition; `problems` are sentences, none when the account holds; so are `remarks`."""

    def __init__(self) -> None:
        self.end_offset = 0
        self.available = self.compacted = self.control = self.expired = self.deleted = self.ledgered = 0
        self.unaccounted = 0
        self.problems: list[str] = []
        self.remarks: list[str] = []
        self._spans: list[Span] = []
        self._gaps: list[Span] = []
        self._lines: list[_Line] = []
        self._shown: list[KnownLoss] = []

    def live(self, span: Span, records: int, *, control: bool) -> None:
        """A batch that is there, or the part of it above the log's start."""
        if control:
            self.control += records
        else:
            self.available += records
        self.compacted += span.end - span.first - records
        last = self._spans[-1] if self._spans else None
        if last is not None and last.end == span.first:
            self._spans[-1] = Span(last.first, span.end)  # a log of many batches is one span
        else:
            self._spans.append(span)

    def gap(self, span: Span) -> None:
        """Offsets that compaction took."""
        self._gaps.append(span)
        self.live(span, 0, control=False)

    def corrupt_range(self, span: Span) -> None:
        """Offsets of a damaged range."""
        self.ledgered += span.end - span.first
        self._spans.append(span)
        self._shown.append(KnownLoss(DAMAGED, *span))

    def add_removed(self, cause: str, span: Span, *, records: int, control: int, compacted: int, loss: bool) -> None:
        """A line of `removed-offsets`."""
        self.control += control
        self.compacted += compacted
        known = KnownLoss(cause, *span)
        if loss:
            self.ledgered += records
            self._shown.append(known)
        elif cause in DELETED:
            self.deleted += records
        else:
            self.expired += records
        self._lines.append(_Line(known, compacted, loss=loss))
        self._spans.append(span)

    def close(self, end_offset: int, ledger: Iterable[KnownLoss]) -> None:
        """Hold everything against the log's end and the ledger."""
        self.end_offset = end_offset
        entries = list(ledger)
        for cause in sorted({known.cause for known in (*self._shown, *entries)}):
            shown = union(known.span for known in self._shown if known.cause == cause)
            told = union(known.span for known in entries if known.cause == cause)
            for span in minus(shown, told):
                self.problems.append(f"offsets {span} are lost ({cause}) and no ledger record says so")
            for span in minus(told, shown):
                if cause != DAMAGED or not self._went_later(span):
                    sentences = self.remarks if cause in ANNOUNCED else self.problems
                    sentences.append(f"offsets {span} are in the ledger as {cause}, and nothing here was lost for that")
            sentences = self.remarks if cause == BY_REQUEST else self.problems  # its bounds are anybody's
            for one, other in overlaps(known for known in entries if known.cause == cause):
                sentences.append(f"the ledger counts offsets twice: {one.id} and {other.id}")
        self._tile()

    def _went_later(self, span: Span) -> bool:
        """A damaged range whose segment was compacted or removed since: its offsets are ledgered, and nothing else."""
        width = span.end - span.first
        if any(gap.first <= span.first and span.end <= gap.end for gap in self._gaps):
            self.compacted -= width
            self.ledgered += width
            return True
        for line in self._lines:
            if line.known.first <= span.first and span.end <= line.known.end:
                return self._take_out(line, width)
        return False

    def _take_out(self, line: _Line, width: int) -> bool:
        if line.compacted >= width:
            line.compacted -= width
            self.compacted -= width
        elif line.loss:
            return False  # its record counts them as lost for another cause, too
        elif line.known.cause in DELETED:
            self.deleted -= width
        else:
            self.expired -= width
        self.ledgered += width
        return True

    def _tile(self) -> None:
        position = 0
        for span in sorted(self._spans):
            if span.first > position:
                self._missing(Span(position, span.first))
            elif span.first < position and span.end > span.first:
                self.problems.append(f"offsets {Span(span.first, min(position, span.end))} are counted twice")
            position = max(position, span.end)
        if position < self.end_offset:
            self._missing(Span(position, self.end_offset))
        gone = self.compacted + self.expired + self.deleted + self.ledgered
        counted = self.available + self.control + gone + self.unaccounted
        if counted != self.end_offset and not self.problems:
            said = f"{quantity_text(counted, 'offset')} {is_or_are(counted)} counted"
            self.problems.append(f"{said}, and the log ends at {self.end_offset}")

    def _missing(self, span: Span) -> None:
        self.unaccounted += span.end - span.first
        self.problems.append(f"offsets {span} are in no account")


def union(spans: Iterable[Span]) -> list[Span]:
    """The same offsets in spans that neither touch nor overlap, rising."""
    merged: list[Span] = []
    for span in sorted(spans):
        if merged and span.first <= merged[-1].end:
            merged[-1] = Span(merged[-1].first, max(merged[-1].end, span.end))
        elif span.end > span.first:
            merged.append(span)
    return merged


def minus(spans: list[Span], subtracted: list[Span]) -> list[Span]:
    """The offsets of `spans` that `subtracted` lack; both as `union` makes them."""
    left: list[Span] = []
    for first, end in spans:
        position = first
        for other in subtracted:
            if other.end > position and other.first < end:
                if other.first > position:
                    left.append(Span(position, other.first))
                position = other.end
        if position < end:
            left.append(Span(position, end))
    return left


def overlaps(entries: Iterable[KnownLoss]) -> list[tuple[KnownLoss, KnownLoss]]:
    """Each ledger entry that begins before one earlier in the order of offsets ends, with that one."""
    found = []
    widest: KnownLoss | None = None
    for known in sorted(entries, key=lambda known: (known.first, known.end)):
        if widest is not None and known.first < widest.end:
            found.append((widest, known))
        if widest is None or known.end > widest.end:
            widest = known
    return found
