"""PURE. Classifies a jump in the source's offsets, and decides where to continue after a position was refused.

Does not contain: clients, clocks, chance: time and chance are arguments.

The rule for gaps. The mirror reads raw batches (kafka_wire.records.batches); it expects offset E next:

| the log has at an offset                                        | verdict   | then                           |
|-----------------------------------------------------------------|-----------|--------------------------------|
| a control batch (transaction marker)                            | control   | go on                          |
| a batch of a transaction that was aborted                       | aborted   | go on (read_committed)         |
| a batch that covers it but holds no record there                | compacted | go on (cleaner keeps the span) |
| no batch, and cleanup.policy has `compact`                      | compacted | go on                          |
| no batch, and cleanup.policy has no `compact`                   | missing   | ledger record, then go on      |

Only the attributes of the batches are trusted, never the size of the jump. Out of range is decided by the log's ends:

| position            | verdict                                              | go on at   |
|---------------------|------------------------------------------------------|------------|
| below the log start | [position, log start) is missing: ledger record      | log start  |
| above the log end   | the source lost [log end, position): ledger record   | log start  |
| between             | the broker has recovered meanwhile                   | position   |

Above the end means that the source lost records that were visible (an unsynced tail, or a topic deleted and created
again). New records may have taken old offsets anywhere below the end, and nothing shows which. So all records that the
source still has are sent again: twice rather than never. On an edge broker only synced records are visible, so there
this does not happen.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


def classify_jump(*, compacted: bool) -> Literal["compacted", "missing"]:
    """Return the verdict on offsets that no batch of the log covers."""
    return "compacted" if compacted else "missing"


class OutOfRange(NamedTuple):
    """The place to continue after a position was refused; the source has lost [first_offset, end_offset)."""

    resume_offset: int
    first_offset: int
    end_offset: int


def classify_out_of_range(position: int, log_start: int, log_end: int) -> OutOfRange:
    """Return the lost offsets and the place to continue; nothing is lost if the two offsets are equal."""
    if position < log_start:
        return OutOfRange(log_start, position, log_start)
    if position > log_end:
        return OutOfRange(log_start, log_end, position)
    return OutOfRange(position, position, position)
