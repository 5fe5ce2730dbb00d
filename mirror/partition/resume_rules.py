"""PURE. Decides where a stream continues, by a lookup at the end of the target's log.

| the topics' ids | last batch of the mirror | the target's log | verdict |
|---|---|---|---|
| source's is another | | | `source_anew` |
| target's is another | | | `target_anew` |
| same | of this session | | `found`: after its last record, by sequence |
| same | of a session with transactions | has it after the safe end | `position`: it was aborted |
| same | of this session, below its place | | `displaced`: find the last one below it that is in its place |
| same | of an earlier session | | `found`: after its last record, by target offset; at most where this session began |
| same | none | nothing was mirrored yet, or begins at the safe end | `position` |
| same | none | was not read down to its floor | `unknown`: look further |
| same | none | begins above the safe end | `unsure` |
| same | none | compacts, and ends at or above that | `position`: newer records have replaced the missing ones |
| same | none | was read down to the floor alone | `unknown`: look from its start, it has lost safe records |
| same | none | has no batch of the mirror | `found`: as much as lies below its start by the map |

- `source_anew`, `target_anew`: from the source's start, with a new map; `source_offset` is the deleted target's end.
- `unsure`: records sent after the stored position were deleted before any lookup. They are sent again: twice rather
  than not at all, but no record that exists now comes twice.
- `lost`, of `found`: so many records were acknowledged, and the target no longer has them (an unclean election).
- `displaced`: the log had lost its end, with all producer state, or had forgotten the producer, before it took the
  batch: Kafka accepts any sequence then. Records after the last batch in its place are sent again, `doubled`.
- After the place where this session began no batch of an earlier one counts: it arrived out of order.
- If another writer's batch has the floor's offset, nothing was compacted there: the log was truncated.
- In a compacted log the mirror's last remaining batch may lie below the stored position: the position holds.

The floor is the offset of the last safe record by the stored position: its batch is found, or the log was truncated.
Does not contain: clients, clocks, chance.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from kafka_wire.records.batches import SEQUENCES
from kafka_wire.transactions.last_batch_lookup import Own
from mirror.partition.leader_epochs import differ
from mirror.partition.offset_map import End, OffsetMap
from mirror.partition.state_records import StateError, StepsMissing, Topics

Verdict = Literal["source_anew", "target_anew", "found", "position", "unsure", "unknown", "displaced"]


class TargetLookup(NamedTuple):
    """The result of a lookup in [searched_from, end_offset) at the target; `last` is the mirror's last batch."""

    start_offset: int
    end_offset: int
    searched_from: int
    last: Own | None
    is_compacted: bool = False


class Session(NamedTuple):
    """The epoch of a producer session, and how many records were mirrored before its sequence 0.

    With transactions the stored position is exact: the session's records after it in the log were never committed.
    """

    producer_id: int
    producer_epoch: int
    records: int
    is_transactional: bool = False


class ResumePoint(NamedTuple):
    """The place to continue: so many records are mirrored, and the next one is at `source_offset` or after it.

    `placed` is a batch found in the log: the records before it, and its first offset.
    """

    verdict: Verdict
    records: int = 0
    source_offset: int = 0
    lost: int = 0
    placed: tuple[int, int] | None = None
    doubled: int = 0


def floor_of(end: End) -> int:
    """Return the target offset that a lookup must reach."""
    return max(0, end.target_offset - 1)


def resume(
    was: Topics, now: Topics, session: Session, known: OffsetMap, seen: TargetLookup, *, holds_all: bool = True
) -> ResumePoint:
    """Decide by the table; `holds_all`: no step is missing in the map. Raises StateError, StepsMissing."""
    end = known.end
    position = ResumePoint("position", end.records, end.source_offset)
    if differ(was.source_id, now.source_id):
        return ResumePoint("source_anew", end.records)
    if differ(was.target_id, now.target_id) or was.target != now.target:
        return ResumePoint("target_anew", 0, end.source_offset)
    is_kept = seen.is_compacted and seen.end_offset >= end.target_offset
    if seen.last is not None and _is_below_its_place(seen.last, session, known):
        return _after_batch(seen.last, session, known, holds_all)._replace(verdict="displaced")
    if seen.last is not None:
        found = _after_batch(seen.last, session, known, holds_all)
        return position if _is_past(found, end, is_kept=is_kept, session=session) else found
    if not known.steps or seen.start_offset == end.target_offset:
        return position
    if seen.searched_from > max(floor_of(end), seen.start_offset):
        return ResumePoint("unknown")
    if seen.start_offset > end.target_offset:
        return position._replace(verdict="unsure")
    if is_kept:
        return position
    if seen.searched_from > seen.start_offset:
        return ResumePoint("unknown")
    return _below(seen.start_offset, known, holds_all)


def _is_past(found: ResumePoint, end: End, *, is_kept: bool, session: Session) -> bool:
    """Return whether the position holds, whatever batch was found."""
    return (session.is_transactional and found.records > end.records) or (is_kept and found.records < end.records)


def _after_batch(batch: Own, session: Session, known: OffsetMap, holds_all: bool) -> ResumePoint:
    if session.is_transactional:
        return _below(batch.last_offset + 1, known, holds_all)
    if (batch.producer_id, batch.producer_epoch) != session[:2]:
        found = _below(batch.last_offset + 1, known, holds_all)
        return _at(session.records, known) if found.records > session.records else found
    before = _records_before(batch.base_sequence, session, known.end)
    if before < session.records:
        raise StateError(f"The target has {batch}, and that life began later by the state: was it changed by hand?")
    count = (batch.last_sequence - batch.base_sequence) % SEQUENCES + 1
    return _at(before + count, known)._replace(placed=(before, batch.base_offset))


def _is_below_its_place(batch: Own, session: Session, known: OffsetMap) -> bool:
    if (batch.producer_id, batch.producer_epoch) != session[:2] or session.is_transactional:
        return False
    place = known.place_of(_records_before(batch.base_sequence, session, known.end))
    return place is not None and batch.base_offset < place.target_offset


def _records_before(sequence: int, session: Session, end: End) -> int:
    """Return how many records precede that of a sequence: of the possible counts, the nearest to the end."""
    near = max(session.records, end.records - 1)
    away = (sequence - (near - session.records) + SEQUENCES // 2) % SEQUENCES - SEQUENCES // 2
    return near + away


def _below(target_offset: int, known: OffsetMap, holds_all: bool) -> ResumePoint:
    """Return the place after all records below a target offset, by the map."""
    below = [step for step in known.steps if step.target_offset < target_offset]
    if not below and not holds_all:
        raise StepsMissing(f"Target offset {target_offset} lies below the steps that are held.")
    if not below:
        return _at(known.steps[0].records if known.steps else known.end.records, known)
    step, beyond = below[-1], known.steps[len(below) :]
    records = step.records + target_offset - step.target_offset
    return _at(min([records, *(one.records for one in beyond[:1])]), known)


def _at(records: int, known: OffsetMap) -> ResumePoint:
    """Return the place after so many records.

    If the source lost its end since, the records to send again lie below the former ones.
    """
    end, first = known.end, known.steps[:1]
    again = min([end.source_offset, *(step.source_offset for step in known.steps if step.records >= records)])
    if records == end.records:
        return ResumePoint("found", records, end.source_offset)
    lost = max(0, end.records - records)
    before = known.place_of(records - 1)
    if before is not None:
        return ResumePoint(
            "found", records, min(before.source_offset + 1, again) if lost else before.source_offset + 1, lost
        )
    if not first or first[0].records != records:
        raise StepsMissing(f"No step in memory has the source offset of record {records}.")
    return ResumePoint("found", records, again, lost)
