"""PURE. What to do: how long to back off, what a jump in the source's offsets means, where to go on, how much to send.

No client, no clock and no chance may come in here: time and chance are arguments.

The rule for gaps. The mirror expects offset E next and sees S > E. The source is asked for its raw batches from E on:

| what the log holds of [E, S)                                    | verdict   | then                          |
|-----------------------------------------------------------------|-----------|-------------------------------|
| a control batch (transaction marker)                            | control   | go on                         |
| a batch of a transaction that was aborted                       | aborted   | go on (read_committed)        |
| a batch that covers the offsets but holds no record there       | compacted | go on (cleaner keeps the span) |
| no batch, and cleanup.policy has `compact`                      | compacted | go on                         |
| no batch, and cleanup.policy has no `compact`                   | missing   | ledger record, then go on     |
| a record: it is there, the client passed over it                | unread    | read it again                 |

Only the attributes of the batches are trusted, never the size of the jump. Out of range is judged by the log's ends:

| position            | verdict                                              | go on at   |
|---------------------|------------------------------------------------------|------------|
| below the log start | [position, log start) is missing: ledger record      | log start  |
| above the log end   | the source lost [log end, position): ledger record   | log start  |
| between             | the broker changed its mind meanwhile                | position   |

Above the end means that the source forgot what it had shown (an unsynced tail, or a topic deleted and created again);
new records may have taken old offsets anywhere below the end, and nothing tells which. So everything the source still
holds is sent again: twice rather than never. An edge broker shows only what is synced, so there this does not happen.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

LINK_WINDOW_BYTES_MIN = 16 * 1024
LINK_WINDOW_BYTES_FIRST = 1024 * 1024
ACK_FAST_S = 2.0
ACK_SLOW_S = 8.0

Verdict = Literal["control", "aborted", "compacted", "missing", "unread"]


@dataclass(frozen=True, slots=True)
class BatchSpan:
    """A batch in the source's log: the offsets it covers, and those at which it still holds a record."""

    base_offset: int
    end_offset: int
    kind: Literal["data", "control", "aborted"] = "data"
    record_offsets: tuple[int, ...] = ()


class Piece(NamedTuple):
    """A run of offsets [first_offset, end_offset) with one verdict."""

    first_offset: int
    end_offset: int
    verdict: Verdict


def judge_jump(expected: int, seen: int, spans: Iterable[BatchSpan], *, compacted: bool) -> list[Piece]:
    """Return a verdict for every offset in [expected, seen), in order, given the batches that the log holds there."""
    pieces: list[Piece] = []
    cursor = expected
    for span in sorted(spans, key=lambda span: span.base_offset):
        base, end = max(span.base_offset, cursor), min(span.end_offset, seen)
        if base >= end:
            continue
        _append(pieces, cursor, base, "compacted" if compacted else "missing")
        _append(pieces, base, end, _verdict(span, base, end))
        cursor = end
    _append(pieces, cursor, seen, "compacted" if compacted else "missing")
    return pieces


def _verdict(span: BatchSpan, first: int, end: int) -> Verdict:
    if span.kind != "data":
        return span.kind
    return "unread" if any(first <= offset < end for offset in span.record_offsets) else "compacted"


def _append(pieces: list[Piece], first: int, end: int, verdict: Verdict) -> None:
    if first >= end:
        return
    if pieces and pieces[-1].verdict == verdict and pieces[-1].end_offset == first:
        first = pieces.pop().first_offset
    pieces.append(Piece(first, end, verdict))


class OutOfRange(NamedTuple):
    """Where to go on after a position was refused; the offsets [first_offset, end_offset) are gone at the source."""

    resume_offset: int
    first_offset: int
    end_offset: int


def judge_out_of_range(position: int, log_start: int, log_end: int) -> OutOfRange:
    """Return what is gone at the source and where to go on; nothing is gone when the two offsets are equal."""
    if position < log_start:
        return OutOfRange(log_start, position, log_start)
    if position > log_end:
        return OutOfRange(log_start, log_end, position)
    return OutOfRange(position, position, position)


class LinkWindow:
    """How many bytes may be under way to the target, grown and shrunk by how long acknowledgements take.

    Without it, a request could need longer for a slow link than its timeout allows, and be sent again for ever.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.limit_bytes = min(bytes_max, LINK_WINDOW_BYTES_FIRST)

    def acked(self, batch_bytes: int, seconds: float) -> None:
        """Note an acknowledgement: a fast one grows the window by what it carried, a slow one cuts a quarter off."""
        if seconds < ACK_FAST_S:
            self.limit_bytes = min(self.bytes_max, self.limit_bytes + batch_bytes)
        elif seconds > ACK_SLOW_S:
            self.limit_bytes = max(LINK_WINDOW_BYTES_MIN, self.limit_bytes * 3 // 4)

    def failed(self) -> None:
        """Note that the producer gave up: halve the window."""
        self.limit_bytes = max(LINK_WINDOW_BYTES_MIN, self.limit_bytes // 2)

    def batch_bytes(self, under_way_bytes: int, batch_bytes_max: int) -> int:
        """Return how large the next batch may be; 0 means wait for an acknowledgement."""
        room = self.limit_bytes - under_way_bytes
        if under_way_bytes and room < LINK_WINDOW_BYTES_MIN:
            return 0
        return min(batch_bytes_max, max(room, LINK_WINDOW_BYTES_MIN))
