"""PURE. What a jump in the source's offsets means, and where to go on after a position was refused.

No client, no clock and no chance may come in here: time and chance are arguments.

The rule for gaps. The mirror reads raw batches (kafka_wire.records.batches); it expects offset E next:

| what the log holds of an offset                                 | verdict   | then                           |
|-----------------------------------------------------------------|-----------|--------------------------------|
| a control batch (transaction marker)                            | control   | go on                          |
| a batch of a transaction that was aborted                       | aborted   | go on (read_committed)         |
| a batch that covers it but holds no record there                | compacted | go on (cleaner keeps the span) |
| no batch, and cleanup.policy has `compact`                      | compacted | go on                          |
| no batch, and cleanup.policy has no `compact`                   | missing   | ledger record, then go on      |

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

from typing import Literal, NamedTuple


def judge_jump(*, compacted: bool) -> Literal["compacted", "missing"]:
    """Return the verdict on offsets that no batch of the log covers."""
    return "compacted" if compacted else "missing"


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
