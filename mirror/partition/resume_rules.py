"""PURE. Where a partition is gone on with, judged by what a look at the target's log has shown.

| the topics' ids | last batch of ours | the target's log | verdict |
|---|---|---|---|
| source's is another | | | `source_anew` |
| target's is another | | | `target_anew` |
| same | of this life | | `found`: behind its last record, by sequence |
| same | of a life with transactions | has it behind what was safe | `position`: it was aborted |
| same | of this life, below its place | | `displaced`: look for the last one below it, until one is in its place |
| same | of an earlier life | | `found`: behind its last record, by target offset; at most where this life began |
| same | none | nothing was mirrored yet, or begins at the end of what was safe | `position` |
| same | none | was not looked at down to its floor | `unknown`: look on |
| same | none | begins above the end of what was safe | `unsure` |
| same | none | compacts, and ends at or above that | `position`: what is missing there has given way to newer records |
| same | none | was looked at down to the floor alone | `unknown`: look from its start, it has lost what was safe |
| same | none | has nothing of ours | `found`: as much as lies below its start by the map |

- `source_anew`, `target_anew`: from the source's start, with a map that begins anew; `source_offset` is where what the
  deleted target had ended.
- `unsure`: what was sent behind the stored position was deleted before anybody looked. It is sent again: twice rather
  than not at all, but nothing that is there now is there twice.
- `lost`, of `found`: so many records were acknowledged, and the target no longer has them (an unclean election).
- `displaced`: the log had lost its end, with all that it knew of the producer, or had forgotten it, before it took the
  batch: Kafka takes any sequence then. What it has behind the last batch in its place is sent again, `doubled`.
- Behind the place where this life began nothing of an earlier one counts: what it took there came out of order.
- Where another's batch has the floor's offset, nothing has given way there: the log was cut, also where it compacts.
- In a log that compacts the last batch of ours that is left may lie below the stored position: the position holds.

The floor is the offset of the last record that was safe by the stored position: its batch is found, or the log was cut.

No client, no clock, no chance may come in here.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from kafka_wire.records.batches import SEQUENCES
from kafka_wire.transactions.last_batch_lookup import Own
from mirror.partition.leader_epochs import differ
from mirror.partition.offset_map import End, OffsetMap
from mirror.partition.state_records import StateError, StepsMissing, Topics

Verdict = Literal["source_anew", "target_anew", "found", "position", "unsure", "unknown", "displaced"]


class Seen(NamedTuple):
    """What a look has shown of [searched_from, end_offset) at the target; `last` is the last batch of ours."""

    start_offset: int
    end_offset: int
    searched_from: int
    last: Own | None
    is_compacted: bool = False


class Life(NamedTuple):
    """The epoch under which the last batches were sent, and how many records were mirrored before its sequence 0.

    Of one with transactions what is stored is exact: what the log has of it behind there was never committed.
    """

    producer_id: int
    producer_epoch: int
    records: int
    is_transactional: bool = False


class Resumed(NamedTuple):
    """So many records are mirrored, and the next one lies at `source_offset` or behind it.

    `placed` is what the log told of a batch: the records before it, and its first offset.
    """

    verdict: Verdict
    records: int = 0
    source_offset: int = 0
    lost: int = 0
    placed: tuple[int, int] | None = None
    doubled: int = 0


def floor_of(end: End) -> int:
    """The target offset that a look must reach."""
    return max(0, end.target_offset - 1)


def resume(was: Topics, now: Topics, life: Life, known: OffsetMap, seen: Seen, *, holds_all: bool = True) -> Resumed:
    """Judge by the table; `holds_all` says whether no step is left out of the map. Raises StateError, StepsMissing."""
    end = known.end
    position = Resumed("position", end.records, end.source_offset)
    if differ(was.source_id, now.source_id):
        return Resumed("source_anew", end.records)
    if differ(was.target_id, now.target_id) or was.target != now.target:
        return Resumed("target_anew", 0, end.source_offset)
    is_kept = seen.is_compacted and seen.end_offset >= end.target_offset
    if seen.last is not None and _is_below_its_place(seen.last, life, known):
        return _behind(seen.last, life, known, holds_all)._replace(verdict="displaced")
    if seen.last is not None:
        found = _behind(seen.last, life, known, holds_all)
        return position if _is_past(found, end, is_kept=is_kept, life=life) else found
    if not known.steps or seen.start_offset == end.target_offset:
        return position
    if seen.searched_from > max(floor_of(end), seen.start_offset):
        return Resumed("unknown")
    if seen.start_offset > end.target_offset:
        return position._replace(verdict="unsure")
    if is_kept:
        return position
    if seen.searched_from > seen.start_offset:
        return Resumed("unknown")
    return _below(seen.start_offset, known, holds_all)


def _is_past(found: Resumed, end: End, *, is_kept: bool, life: Life) -> bool:
    """Whether the position holds, whatever batch was found."""
    return (life.is_transactional and found.records > end.records) or (is_kept and found.records < end.records)


def _behind(batch: Own, life: Life, known: OffsetMap, holds_all: bool) -> Resumed:
    if life.is_transactional:
        return _below(batch.last_offset + 1, known, holds_all)
    if (batch.producer_id, batch.producer_epoch) != life[:2]:
        found = _below(batch.last_offset + 1, known, holds_all)
        return _at(life.records, known) if found.records > life.records else found
    before = _records_before(batch.base_sequence, life, known.end)
    if before < life.records:
        raise StateError(f"The target has {batch}, and that life began later by the state: was it changed by hand?")
    count = (batch.last_sequence - batch.base_sequence) % SEQUENCES + 1
    return _at(before + count, known)._replace(placed=(before, batch.base_offset))


def _is_below_its_place(batch: Own, life: Life, known: OffsetMap) -> bool:
    if (batch.producer_id, batch.producer_epoch) != life[:2] or life.is_transactional:
        return False
    place = known.place_of(_records_before(batch.base_sequence, life, known.end))
    return place is not None and batch.base_offset < place.target_offset


def _records_before(sequence: int, life: Life, end: End) -> int:
    """How many records were mirrored before that of a sequence: of the counts it may mean, the nearest to the end."""
    near = max(life.records, end.records - 1)
    away = (sequence - (near - life.records) + SEQUENCES // 2) % SEQUENCES - SEQUENCES // 2
    return near + away


def _below(target_offset: int, known: OffsetMap, holds_all: bool) -> Resumed:
    """As many as lie below a target offset by the map."""
    below = [step for step in known.steps if step.target_offset < target_offset]
    if not below and not holds_all:
        raise StepsMissing(f"Target offset {target_offset} lies below the steps that are held.")
    if not below:
        return _at(known.steps[0].records if known.steps else known.end.records, known)
    step, beyond = below[-1], known.steps[len(below) :]
    records = step.records + target_offset - step.target_offset
    return _at(min([records, *(one.records for one in beyond[:1])]), known)


def _at(records: int, known: OffsetMap) -> Resumed:
    """Behind so many records.

    Where the source lost its end since, what is to be sent again lies below where they lay.
    """
    end, first = known.end, known.steps[:1]
    again = min([end.source_offset, *(step.source_offset for step in known.steps if step.records >= records)])
    if records == end.records:
        return Resumed("found", records, end.source_offset)
    lost = max(0, end.records - records)
    before = known.place_of(records - 1)
    if before is not None:
        return Resumed(
            "found", records, min(before.source_offset + 1, again) if lost else before.source_offset + 1, lost
        )
    if not first or first[0].records != records:
        raise StepsMissing(f"Where record {records} came from is told by none of the steps that are held.")
    return Resumed("found", records, again, lost)
