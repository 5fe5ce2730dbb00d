"""PURE. Tracks one partition's state: what sequences mean, where records went, what the state topic has yet to store.

| event | the map | must be stored before the next batch is sent |
|---|---|---|
| begin (after a fence) | steps after the place to continue are dropped | the head: who writes, from which record on |
| send(runs) | a step where offsets or the epoch do not continue | that step |
| batch_acked(base offset) | the end advances; another offset than expected: a step | for a session's first batch only |
| pass_over, go_back | the end's source offset moves | no |
| reuse_sequences (all was refused) | later steps are dropped | the head and the steps |
| continue_session (no fence) | stays: promises are kept | nothing, as nothing may be new |

A session is one epoch of the producer in this partition, from a fence to the next one. Its sequences count records from
0, and after 2^31 - 1 comes 0 again. Every step is on the target's disks before the first sequence after it is sent. So
any batch of the mirror in the target's log has one meaning. In a session with transactions both are committed at once,
and sequences mean nothing to the next session.

A position (`end`) is stored with every other write, else seldom: so that a lookup has a near floor, that less than 2^30
records lie after it, and on a clean stop.
Does not contain: clients, clocks, chance, where to continue (resume_rules.py), formats (state_records.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from kafka_wire.records.batches import SEQUENCES
from mirror.partition.leader_epochs import EpochStart
from mirror.partition.offset_map import End, OffsetMap, Step
from mirror.partition.provenance import Origin, Writing, origin_of_writing
from mirror.partition.resume_rules import ResumePoint, Session, TargetLookup, resume
from mirror.partition.state_records import (
    CHUNK_STEPS,
    Head,
    Partition,
    Record,
    StoredState,
    Topics,
    head_record,
    no_steps_record,
    steps_record,
)

HELD_CHUNKS_MAX = 4  # in memory, once they are stored
REMOVED_MAX = 64  # chunks removed by one write
FORMER_MAX = 8  # producer ids

Run = tuple[int, int]  # the first source offset of records without gaps, and their number


class Contradiction(Exception):
    """A sequence that may be in flight would come to mean another record: a new epoch must begin."""


class SentBatch(NamedTuple):
    """A batch that got its sequences, and the offset that the target is expected to give it."""

    records_before: int
    size: int
    base_sequence: int
    target_offset: int


class Write(NamedTuple):
    """The records of one write, in one batch; the other fields are for the state alone."""

    records: list[Record]
    changed: int | None
    promises: int
    removed: int
    end: End


class _UnderWay(NamedTuple):
    records_before: int
    size: int
    source_end: int


class PartitionState:
    """The state of `partition`, as it is named at the source; new, or as it was stored."""

    def __init__(self, partition: Partition, topics: Topics, stored: StoredState | None = None) -> None:
        self.partition = partition
        self.topics = topics
        self.session = Session(-1, -1, 0)
        self.map = OffsetMap((), End(0, 0, 0))
        self._passed: EpochStart | None = None  # of the source's skipped records
        self._first_chunk = self._held_chunk = 0
        self.origin: Origin | None = None  # of the records in the target's log
        self._former_ids: tuple[int, ...] = ()
        if stored is not None:
            head = stored.head
            self.topics = head.topics
            self.session = Session(head.producer_id, head.producer_epoch, head.life, head.is_transactional)
            self.map = OffsetMap(stored.steps, head.end)
            self._first_chunk, self._held_chunk = head.first_chunk, stored.held_chunk
            self._passed = head.passed
            self.origin = head.origin
            self._former_ids = head.former_ids
        self._removed: list[int] = []
        self._next, self._next_target = self.map.end.records, self.map.end.target_offset
        self._source_end = self.map.end.source_offset
        self._is_bound = False  # by records that a previous session may have sent under this epoch
        self._under_way: deque[_UnderWay] = deque()
        self._changed: int | None = None  # the first step, by its place in the list, that is not stored as it is
        self._promises: list[int] = []  # records before each step that must be stored first, ascending
        self._writing: Write | None = None
        self._stored_end = self.map.end

    @property
    def _name(self) -> str:
        return f"{self.partition[0]}-{self.partition[1]}"

    @property
    def producer_ids(self) -> frozenset[int]:
        """Producer ids of this mirror's batches in the target's log; the last one may have written none yet."""
        return frozenset({*self._former_ids, self.session.producer_id} - {-1})

    # start of a session

    def resume(self, seen: TargetLookup, topics: Topics) -> ResumePoint:
        """Decide where to continue; in another topic the caller sets `source_offset`. Raises StateError."""
        holds_all = self._held_chunk == self._first_chunk
        return resume(self.topics, topics, self.session, self.map, seen, holds_all=holds_all)

    def begin(
        self,
        topics: Topics,
        producer_id: int,
        producer_epoch: int,
        resumed: ResumePoint,
        target_end: int,
        *,
        is_transactional: bool = False,
        origin: Origin | None = None,
    ) -> None:
        """Start a session under an epoch that is in force now, in a log that ends at `target_end`.

        `origin` is the origin of its records; without one the stored origin stays.
        """
        assert resumed.verdict != "unknown", "look on first"
        if resumed.verdict in ("source_anew", "target_anew"):
            self.drop_map(resumed)
        if origin is not None:
            is_new_log = resumed.verdict == "target_anew"
            writing = Writing(producer_id, target_end, self.session.producer_id, is_new_log)
            self.origin = origin_of_writing(self.origin, origin, writing)
        self._go_to(resumed, target_end)
        self._promises = []
        self._must_write_from(self._next)
        self.topics = topics
        known = dict.fromkeys([*self._former_ids, self.session.producer_id])
        self._former_ids = tuple(one for one in known if one not in (-1, producer_id))[-FORMER_MAX:]
        self.session = Session(producer_id, producer_epoch, self._next, is_transactional)
        self._is_bound = False

    def drop_map(self, resumed: ResumePoint) -> None:
        """Start a new map, as the steps of the former log are of no use any more."""
        last = self._held_chunk + max(0, len(self.map.steps) - 1) // CHUNK_STEPS
        self._removed += range(self._first_chunk, last + 1)
        self._first_chunk = self._held_chunk = last + 1
        self.map = OffsetMap((), End(resumed.records, resumed.source_offset, 0))
        self._passed = None

    def continue_session(self, resumed: ResumePoint, target_end: int) -> None:
        """Continue the previous session without a fence; `send` then contradicts none of its batches."""
        assert resumed.verdict in ("found", "position"), "another epoch has to begin"
        self._go_to(resumed, target_end)
        self._is_bound = True

    def _go_to(self, resumed: ResumePoint, target_end: int) -> None:
        end = self.map.end
        self._next, self._next_target, self._source_end = resumed.records, target_end, resumed.source_offset
        self._under_way.clear()
        if resumed.placed is not None:
            before, offset = resumed.placed
            expected = self.map.place_of(before)
            if expected is not None and expected.target_offset < offset:  # others wrote since the last stored position
                self._shift(before, offset)
        last = self.map.place_of(resumed.records - 1)
        target = end.target_offset if last is None else last.target_offset + 1
        self.map.end = End(resumed.records, resumed.source_offset, target)

    # records in flight

    def send(self, runs: Sequence[Run], source_epoch: int) -> SentBatch:
        """Assign sequences to the records of one batch; they may go once `may_go` says so.

        Raises Contradiction, and assigns none, if a previous session may have sent other records under them.
        """
        places, records, target = [], self._next, self._next_target
        for source_offset, count in runs:
            places.append((Step(records, source_offset, source_epoch, target), count))
            records, target = records + count, target + count
        if self._is_bound:
            self._keep(places)
        for step, _ in places if not self._is_bound else ():
            self._promise(step)
        sent = SentBatch(
            self._next, records - self._next, (self._next - self.session.records) % SEQUENCES, self._next_target
        )
        source_offset, count = runs[-1]
        self._under_way.append(_UnderWay(self._next, sent.size, source_offset + count))
        self._next, self._next_target = records, target
        return sent

    def _promise(self, step: Step) -> None:
        try:
            is_new = self.map.add(step)
        except ValueError as error:  # another client has written under this producer
            raise Contradiction(f"{self._name}: {error}") from error
        if is_new:
            self._promises.append(step.records)
            self._change(len(self.map.steps) - 1)

    def _keep(self, places: Sequence[tuple[Step, int]]) -> None:
        for step, count in places:
            if not self.map.is_promised(step, count):
                raise Contradiction(f"{self._name}: offset {step.source_offset} is not what was promised to come next")
        try:
            for step, _ in places:
                self._shift(step.records, step.target_offset)
        except ValueError as error:
            raise Contradiction(f"{self._name}: {error}") from error

    def reuse_sequences(self, sent: SentBatch) -> None:
        """Reuse the sequences of this batch and all later ones: by the responses, none of them was appended.

        Used if the target refuses a record, which is left out. Never take back a batch that may have arrived: after
        `continue_session` this raises Contradiction, and takes back nothing.
        """
        if self._is_bound:
            raise Contradiction(f"{self._name}: a batch that a previous session may have sent cannot be taken back")
        place = self.map.place_of(sent.records_before)
        assert place is not None
        while self._under_way and self._under_way[-1].records_before >= sent.records_before:
            self._under_way.pop()
        self._next, self._next_target = sent.records_before, place.target_offset
        self._source_end = place.source_offset  # the next batch skips the records after it again
        self._must_write_from(self._next)

    def _must_write_from(self, records: int) -> None:
        """Drop the steps of records from there on; this must be written before any of these is sent."""
        self.map.cut(records)
        self._change(len(self.map.steps))
        self._writing = None
        self._promises = [*(promise for promise in self._promises if promise < records), records]

    def may_go(self, sent: SentBatch) -> bool:
        """Return whether the state topic has the meaning of these sequences, or will have it in their transaction."""
        return (
            self.session.is_transactional or not self._promises or self._promises[0] >= sent.records_before + sent.size
        )

    def batch_acked(self, base_offset: int) -> int:
        """Note that the oldest batch in flight is safe, and return how far from its expected offset.

        Above 0: others wrote in between, and the map has it now. Below 0: the target has lost acknowledged records, or
        took the batch for an older one. Then nothing is noted, and its log must be read.
        """
        records, count, source_end = self._under_way[0]
        expected = self.map.place_of(records)
        assert expected is not None
        away = base_offset - expected.target_offset
        if away < 0:
            return away
        try:
            self._shift(records, base_offset)
        except ValueError:  # it cannot be there: another client has written under this producer
            return -1
        self._under_way.popleft()
        self._next_target += away
        if away and records == self.session.records:  # else a kill would leave the whole session at its expected place
            self._promises.insert(0, records + count)
        last = self.map.place_of(records + count - 1)
        assert last is not None
        self.map.end = End(records + count, source_end, last.target_offset + 1)
        if not self._under_way:
            self.pass_over(self._source_end)
        return away

    def _shift(self, records: int, target_offset: int) -> None:
        if self.map.shift(records, target_offset):
            self._change(next(at for at, step in enumerate(self.map.steps) if step.records >= records))

    def pass_over(self, source_offset: int, passed: EpochStart | None = None) -> None:
        """Note that below this offset nothing more is to be sent, except batches in flight; `passed` is its epoch."""
        self._passed = passed or self._passed
        self._source_end = max(self._source_end, source_offset)
        if not self._under_way:
            self.map.end = self.map.end._replace(source_offset=max(self.map.end.source_offset, self._source_end))

    def go_back(self, source_offset: int, passed: EpochStart | None = None) -> None:
        """Note that the source lost its records from this offset on; new ones there are of a higher epoch."""
        assert not self._under_way
        self._passed = passed
        self._source_end = source_offset
        self.map.end = self.map.end._replace(source_offset=source_offset)

    @property
    def epoch_starts(self) -> list[EpochStart]:
        """The source's leader epochs below its end, as far as is held, both rising; for LeaderEpochs.

        No step has the skipped records, yet other records may come there.
        """
        starts: list[EpochStart] = []
        for step in self.map.steps:
            if step.records < self.map.end.records and step.source_epoch >= 0:
                while starts and starts[-1].offset >= step.source_offset:
                    starts.pop()
                if not starts or starts[-1].leader_epoch < step.source_epoch:
                    starts.append(EpochStart(step.source_offset, step.source_epoch))
        while starts and starts[-1].offset >= self.map.end.source_offset:
            starts.pop()
        passed, last = self._passed_safely, starts[-1] if starts else EpochStart(-1, -1)
        if passed is not None and last.offset < passed.offset and last.leader_epoch < passed.leader_epoch:
            starts.append(passed)
        return starts

    @property
    def _passed_safely(self) -> EpochStart | None:
        is_safe = self._passed is not None and self._passed.offset < self.map.end.source_offset
        return self._passed if is_safe else None

    # writes

    @property
    def is_urgent(self) -> bool:
        """Whether a batch waits for a write."""
        return bool(self._promises)

    @property
    def is_behind(self) -> bool:
        """Whether the stored position is older than the present one."""
        return self._stored_end != self.map.end

    @property
    def records_behind(self) -> int:
        """The number of safe records after the stored position."""
        return self.map.end.records - self._stored_end.records

    def write(self) -> Write:
        """Return the next write; then call `write_stored` or `not_stored`. One write at a time."""
        assert self._writing is None, "one write at a time"
        steps, removed = self.map.steps, self._removed[:REMOVED_MAX]
        last = max(0, len(steps) - 1) // CHUNK_STEPS
        first = last + 1 if self._changed is None else min(self._changed // CHUNK_STEPS, last)
        records = [no_steps_record(self.partition, chunk) for chunk in removed]
        for number in range(first, last + 1):
            some = steps[number * CHUNK_STEPS :][:CHUNK_STEPS]
            records.append(steps_record(self.partition, self._held_chunk + number, some))
        head = Head(
            self.topics,
            self.session.producer_id,
            self.session.producer_epoch,
            self.session.records,
            self._first_chunk,
            self._held_chunk + last,
            len(steps) - last * CHUNK_STEPS,
            self.map.end,
            self.session.is_transactional,
            self._passed_safely,
            self.origin,
            self._former_ids,
        )
        records.append(head_record(self.partition, head))
        self._writing, self._changed = (
            Write(records, self._changed, len(self._promises), len(removed), self.map.end),
            None,
        )
        return self._writing

    def write_stored(self, write: Write) -> None:
        """Note that the state topic has this; ignored if a session started or sequences were taken back meanwhile."""
        if write is not self._writing:
            return
        self._writing, self._stored_end = None, write.end
        del self._promises[: write.promises]
        del self._removed[: write.removed]
        if self._changed is None:
            self._drop_old_chunks()

    def not_stored(self, write: Write) -> None:
        """Note that it may have this, or not."""
        if write is self._writing:
            self._writing = None
            if write.changed is not None:
                self._change(write.changed)

    def store_again(self) -> None:
        """Write all state in memory again, as the state topic has lost it: its steps with the next head, at once.

        The steps of older chunks are gone.
        """
        self._first_chunk, self._removed = self._held_chunk, []
        if self.map.steps:
            self._change(0)

    def _change(self, at: int) -> None:
        self._changed = at if self._changed is None else min(self._changed, at)

    def _drop_old_chunks(self) -> None:
        """Keep only the last chunks in memory."""
        steps = self.map.steps
        while len(steps) > HELD_CHUNKS_MAX * CHUNK_STEPS and steps[2 * CHUNK_STEPS].records < self.map.end.records:
            del steps[:CHUNK_STEPS]
            self._held_chunk += 1

    def forget_below(self, target_offset: int) -> None:
        """Remove, with the next write, chunks whose records the target has deleted, of those that are held or older."""
        below = sum(step.target_offset <= target_offset for step in self.map.steps) - 1
        kept = self._held_chunk + max(0, below) // CHUNK_STEPS
        if below >= 0 and kept > self._first_chunk:
            self._removed += range(self._first_chunk, kept)
            self._first_chunk = kept
