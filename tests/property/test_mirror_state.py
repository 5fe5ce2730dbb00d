"""The mirror's state and map against a model of both logs, under any order of sends, losses, fences and restarts.

Invariants, whatever is lost on the way, and with others writing to the target in between:
1. When all is drained, every record of the source is at the target, all once and in order; also where the source has
   dropped some before anybody knew that they were safe.
2. Of one epoch, a sequence never has two meanings, whatever comes late; and what is answered as being there already is
   what was sent.
3. The map tells for every offset of either end what the logs tell; what others wrote since the last stored position of
   a life that was killed may be off by as many.
4. Nothing is sent before the state topic holds what it means; and what is read there is what was written.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_wire.records.batches import SEQUENCES
from kafka_wire.transactions.last_batch_lookup import Own
from mirror.partition.leader_epochs import EpochStart
from mirror.partition.offset_map import End, OffsetAtOtherEnd, OffsetMap, Step
from mirror.partition.resume_rules import ResumePoint, Session, TargetLookup, floor_of, resume
from mirror.partition.state_records import (
    CHUNK_STEPS,
    Head,
    Reading,
    StateError,
    StepsMissing,
    StoredState,
    Topics,
    head_record,
    steps_record,
)
from mirror.partition.target_state import Contradiction, PartitionState

PARTITION = ("readings", 0)
TOPICS = Topics("lab.readings", "s", "t")
PRODUCER = 7


class Entry(NamedTuple):
    """What the target holds at one offset; a record of ours has its source offset and epoch."""

    batch: int = -1
    epoch: int = -1
    sequence: int = -1
    source: tuple[int, int] | None = None


class Road:
    """Both ends and what is between; with `fences` each restart has a new epoch, without it goes on in the same."""

    def __init__(self, source, first_records=0, fences=True):
        self.source = list(source)  # offset and epoch of each record, ascending
        self.source_end = source[-1][0] + 1 if source else 0
        self.target = []
        self.topic = {}
        self.meanings = {}
        self.epoch = 0 if fences else -1
        self.batches = 0
        self.fences = fences
        self.may_be_off = False
        self.ghosts = []
        self.remembered, self.next_sequence, self.recent = -1, 0, []
        if first_records:
            head = Head(TOPICS, PRODUCER, 0, 0, 0, 0, 0, End(first_records, 0, 0))
            self.topic = dict([head_record(PARTITION, head)])
        self.state = self.read()
        self.start()
        if first_records:  # as if its life had been long: soon its sequences begin anew
            self.next_sequence = SEQUENCES - 5
            self.state.session = self.state.session._replace(records=first_records - self.next_sequence)
            self.remembered = self.epoch

    def read(self, chunks_max=2):
        reading = Reading(chunks_max)
        for key, value in self.topic.items():
            reading.take(key, value)
        return PartitionState(PARTITION, TOPICS, reading.partitions().get(PARTITION))

    def look(self, floor):
        last = next((entry for entry in reversed(self.target[floor:]) if entry.source), None)
        if last is None:
            return TargetLookup(0, len(self.target), min(floor, len(self.target)), None)
        own = [(at, entry) for at, entry in enumerate(self.target) if entry.batch == last.batch]
        batch = Own(PRODUCER, last.epoch, own[0][1].sequence, last.sequence, own[0][0], own[-1][0])
        return TargetLookup(0, len(self.target), own[0][0], batch)

    def start(self, fence=False):
        """Fence, look, and begin: what was on its way is lost or has arrived."""
        fences = fence or self.fences or self.epoch < 0
        if fences:
            self.epoch += 1
            if self.fences:
                self.target.append(Entry(epoch=self.epoch))
                self.remember(self.epoch)
            else:
                self.ghosts = []  # they may get in before our first batch: weaker, as is told
        resumed = self.state.resume(self.look(floor_of(self.state.map.end)), TOPICS)
        if resumed.verdict == "unknown":
            resumed = self.state.resume(self.look(0), TOPICS)
        if fences:
            self.state.begin(TOPICS, PRODUCER, self.epoch, resumed, len(self.target))
        else:
            self.state.continue_session(resumed, len(self.target))
        self.at = resumed.source_offset
        self.sent = []

    def write(self, *, lost=False):
        write = self.state.write()
        if lost:
            self.state.not_stored(write)
            return
        for key, value in write.records:
            if value is None:
                self.topic.pop(key, None)
            else:
                self.topic.pop(key, None)
                self.topic[key] = value
        self.state.write_stored(write)

    def send(self, count):
        epochs = {epoch for _, epoch in self.ahead()[:1]}
        some = [record for record in self.ahead()[:count] if record[1] in epochs]
        if not some or len(self.sent) == 5:
            return
        runs = []
        for offset, _ in some:
            if runs and sum(runs[-1]) == offset:
                runs[-1] = (runs[-1][0], runs[-1][1] + 1)
            else:
                runs.append((offset, 1))
        try:
            sent = self.state.send(runs, *epochs)
        except Contradiction:
            self.arrive_all()
            self.start(fence=True)
            return
        self.sent.append((sent, some))
        self.at = some[-1][0] + 1

    def ahead(self):
        return [record for record in self.source if record[0] >= self.at]

    def arrive(self, *, answered=True):
        """The oldest request that may go reaches the target."""
        sent, some = self.sent[0]
        if not self.state.may_go(sent):
            self.write()
        assert self.state.may_go(sent)
        held = self.read()
        assert held.session == self.state.session
        for delta, record in enumerate(some):
            assert held.map.is_promised(Step(sent.records_before + delta, *record, 0), 1)
        base = self.append(self.epoch, sent.base_sequence, some)
        del self.sent[0]
        if base is None:
            assert not self.fences
            self.start()
        elif answered:
            assert self.state.batch_acked(base) >= 0

    def append(self, epoch, sequence, some):
        """As a Kafka appends: the base offset, None where it refuses."""
        if epoch < self.remembered or (epoch > self.remembered and sequence):
            return None
        if epoch > self.remembered:
            self.remember(epoch)
        for first, records, base in self.recent:
            if (first, len(records)) == (sequence, len(some)):
                assert records == some, "a sequence with two meanings"
                return base
        if sequence != self.next_sequence:
            return None
        base = len(self.target)
        for delta, record in enumerate(some):
            at = (sequence + delta) % SEQUENCES
            assert self.meanings.setdefault((epoch, at), record) == record
            self.target.append(Entry(self.batches, epoch, at, record))
        self.batches += 1
        self.next_sequence = (sequence + len(some)) % SEQUENCES
        self.recent = [*self.recent, (sequence, some, base)][-5:]
        return base

    def remember(self, epoch):
        self.remembered, self.next_sequence, self.recent = epoch, 0, []

    def ghost(self, number):
        """A late request of an older life, or of a connection that is gone."""
        if self.ghosts:
            came = self.append(*self.ghosts.pop(number % len(self.ghosts)))
            self.may_be_off |= came is not None and not self.fences  # what nobody looks for after it is not known of

    def arrive_all(self):
        while self.sent:
            self.arrive()

    def kill(self, arriving):
        """A new life: some of what is under way arrives, nobody hears of it; the rest may come late."""
        self.lose(arriving)
        self.state = self.read()
        self.start()

    def reconnect(self, arriving):
        self.lose(arriving)
        self.start()

    def lose(self, arriving):
        for _ in range(arriving):
            if self.sent:
                self.arrive(answered=False)
        self.ghosts += [(self.epoch, sent.base_sequence, some) for sent, some in self.sent if self.state.may_go(sent)]

    def compact(self, number):
        """The source drops a record that it has not been told to be safe."""
        free = [record for record in self.source if record[0] >= self.state.map.end.source_offset]
        if free:
            self.source.remove(free[number % len(free)])

    def refuse(self, number):
        """One of the batches under way is refused, and all behind it with it; its first record is left out."""
        if self.sent:
            refused = self.sent[number % len(self.sent) :]
            del self.sent[number % len(self.sent) :]
            left_out = refused[0][1][0]
            self.source.remove(left_out) if left_out in self.source else None
            try:
                self.state.reuse_sequences(refused[0][0])
                self.at = left_out[0] + 1
            except Contradiction:
                self.start(fence=True)

    def drain(self):
        for _ in range(200):
            self.arrive_all()
            self.send(3)
        assert not self.ahead()
        self.arrive_all()
        self.state.pass_over(self.source_end)
        self.write()

    def check(self):
        own = [(at, entry.source) for at, entry in enumerate(self.target) if entry.source]
        assert [record for _, record in own] == sorted({record for _, record in own})
        assert {record for _, record in own} >= set(self.source)
        if self.may_be_off:
            return
        assert self.state.map.end.target_offset == (own[-1][0] + 1 if own else 0)
        for known in (self.state.map, self.read(None).map):
            self.check_map(known, own)

    def check_map(self, known, own):
        there = {offset: at for at, (offset, _) in own}
        back = {at: offset for at, (offset, _) in own}
        first_source, first_target = (own[0][1][0], own[0][0]) if own else (self.source_end, 0)
        end = (self.source_end, own[-1][0] + 1 if own else 0)
        for here, pairs, first, (last, other) in (
            (known.to_target, there, first_source, end),
            (known.to_source, back, first_target, end[::-1]),
        ):
            for offset in range(-1, last + 3):
                if offset in pairs:
                    expected = OffsetAtOtherEnd(pairs[offset], True)
                elif offset > last or (offset < first and offset != last):
                    expected = None
                else:
                    expected = OffsetAtOtherEnd(
                        next((pairs[later] for later in sorted(pairs) if later > offset), other), False
                    )
                assert here(offset) == expected, offset


@st.composite
def sources(draw):
    offset, epoch, records = draw(st.integers(0, 50)), 0, []
    for _ in range(draw(st.sampled_from([0, 1, 30]))):
        offset += draw(st.sampled_from([1, 1, 1, 1, 2, 9]))
        epoch += draw(st.sampled_from([0, 0, 0, 0, 0, 1]))
        records.append((offset, epoch))
    return records


ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 6)),
        st.tuples(st.just("arrive"), st.just(0)),
        st.tuples(st.just("write"), st.booleans()),
        st.tuples(st.sampled_from(["kill", "reconnect"]), st.integers(0, 5)),
        st.tuples(st.just("foreign"), st.integers(1, 3)),
        st.tuples(st.just("compact"), st.integers(0, 10)),
        st.tuples(st.just("refuse"), st.integers(0, 5)),
        st.tuples(st.just("ghost"), st.integers(0, 5)),
    ),
    min_size=5,
    max_size=40,
)


def act(road, name, number):
    if name == "arrive":
        if road.sent:
            road.arrive()
    elif name == "write":
        road.write(lost=number)
    elif name == "foreign":
        road.target += [Entry()] * number
        road.may_be_off |= road.is_killed_later
    else:
        getattr(road, name)(number)


@settings(max_examples=400)
@given(sources(), ACTS, st.sampled_from([0, SEQUENCES + 7]), st.booleans())
def test_every_record_once_and_the_map_exact(source, acts, first_records, fences):
    road = Road(source, first_records, fences)
    road.is_killed_later = any(name in ("kill", "reconnect") for name, _ in acts)
    for name, number in acts:
        act(road, name, number)
    road.drain()
    road.check()


def test_after_a_kill_the_last_batch_tells_how_much_others_have_written():
    road = Road([(offset, 0) for offset in range(20)])
    road.send(5)
    road.arrive()
    road.write()
    for _ in range(2):
        road.send(5)
        road.target.append(Entry())
        road.arrive()
    road.kill(0)
    road.drain()
    for at, entry in enumerate(road.target):
        if entry.source and not 5 <= entry.source[0] < 10:  # which side of these others wrote is not known
            assert road.state.map.to_target(entry.source[0]) == OffsetAtOtherEnd(at, True)
            assert road.state.map.to_source(at) == OffsetAtOtherEnd(entry.source[0], True)


def test_a_life_is_written_down_before_its_first_record_though_no_step_is_new():
    state = state_with(STEPS, END)
    state.begin(TOPICS, PRODUCER, 4, ResumePoint("position", 20, 130), 520)
    sent = state.send([(130, 5)], 7)
    assert not state.may_go(sent)
    write = state.write()
    assert len(write.records) == 2
    state.not_stored(write)
    assert not state.may_go(sent)
    again = state.write()
    assert len(again.records) == 2
    state.write_stored(write)
    assert not state.may_go(sent)
    state.write_stored(again)
    assert state.may_go(sent)
    assert not state.is_urgent


def test_what_a_former_life_may_have_sent_is_not_taken_back():
    state = state_with(STEPS, END)
    state.continue_session(ResumePoint("found", 20, 130), 520)
    sent = state.send([(130, 5)], 7)
    with pytest.raises(Contradiction, match="readings-0: a batch that a previous session"):
        state.reuse_sequences(sent)
    with pytest.raises(Contradiction, match="readings-0: offset 140 is not what was promised"):
        state.send([(140, 5)], 7)
    assert state.batch_acked(520) == 0


def test_what_was_passed_over_behind_records_that_are_taken_back_is_not_passed_over_with_those_before():
    """Else a life that ends then goes on behind records that are nowhere."""
    state = state_with(STEPS, END)
    state.begin(TOPICS, PRODUCER, 4, ResumePoint("found", 20, 130), 520)
    state.send([(130, 5)], 7)
    taken = state.send([(135, 5)], 7)
    state.pass_over(200)
    state.reuse_sequences(taken)
    assert state.batch_acked(520) == 0
    assert state.map.end == End(25, 135, 525)


def test_nothing_follows_a_lifes_first_batch_before_it_is_stored_that_it_went_elsewhere():
    state = state_with(STEPS, END)
    state.begin(TOPICS, PRODUCER, 4, ResumePoint("found", 20, 130), 520)
    state.send([(130, 5)], 7)
    state.write_stored(state.write())
    assert state.batch_acked(521) == 1
    sent = state.send([(135, 5)], 7)
    assert not state.may_go(sent)
    state.write_stored(state.write())
    assert state.may_go(sent)


def state_with(steps, end, life=(PRODUCER, 3, 0)):
    head = Head(TOPICS, *life, 0, 0, len(steps), end)
    return PartitionState(PARTITION, TOPICS, StoredState(head, 0, list(steps)))


STEPS = (Step(0, 100, 7, 500), Step(10, 120, 7, 510))
END = End(20, 130, 520)


@pytest.mark.parametrize(
    ("now", "seen", "resumed"),
    [
        (TOPICS._replace(source_id="other"), TargetLookup(0, 520, 519, None), ResumePoint("source_anew", 20)),
        (TOPICS._replace(target_id="other"), TargetLookup(0, 0, 0, None), ResumePoint("target_anew", 0, 130)),
        (TOPICS._replace(target_id=None), TargetLookup(520, 520, 520, None), ResumePoint("position", 20, 130)),
        (
            TOPICS,
            TargetLookup(0, 530, 525, Own(7, 3, 20, 24, 525, 529)),
            ResumePoint("found", 25, 135, placed=(20, 525)),
        ),
        (
            TOPICS,
            TargetLookup(0, 505, 0, Own(7, 3, 0, 4, 500, 504)),
            ResumePoint("found", 5, 105, lost=15, placed=(0, 500)),
        ),
        (TOPICS, TargetLookup(0, 530, 525, None), ResumePoint("unknown")),
        (TOPICS, TargetLookup(0, 530, 519, None), ResumePoint("unknown")),
        (TOPICS, TargetLookup(0, 530, 519, None, is_compacted=True), ResumePoint("position", 20, 130)),
        (TOPICS, TargetLookup(0, 530, 0, Own(7, 3, 0, 4, 500, 504), True), ResumePoint("position", 20, 130)),
        (TOPICS, TargetLookup(520, 521, 520, None), ResumePoint("position", 20, 130)),
        (TOPICS, TargetLookup(525, 525, 525, None), ResumePoint("unsure", 20, 130)),
        (TOPICS, TargetLookup(0, 10, 0, None), ResumePoint("found", 0, 100, lost=20)),
        (TOPICS, TargetLookup(505, 512, 505, None), ResumePoint("found", 5, 105, lost=15)),
    ],
)
def test_where_it_goes_on(now, seen, resumed):
    assert state_with(STEPS, END).resume(seen, now) == resumed


@pytest.mark.parametrize(
    ("own", "resumed"),
    [
        (Own(7, 2, 4, 9, 504, 509), ResumePoint("found", 10, 110, lost=10)),
        (Own(6, 9, 4, 9, 512, 514), ResumePoint("found", 15, 125, lost=5)),
        (Own(7, 2, 4, 15, 512, 523), ResumePoint("found", 20, 130)),
    ],
)
def test_a_batch_of_an_earlier_life_proves_nothing_of_what_this_one_sends(own, resumed):
    """The last one was taken out of order, and its records are sent again behind it: it has no place in the map."""
    assert state_with(STEPS, END, (PRODUCER, 3, 20)).resume(TargetLookup(0, 530, 525, own), TOPICS) == resumed


def test_a_batch_below_its_place_proves_that_the_log_has_lost_its_end():
    own = Own(7, 3, 20, 24, 515, 519)
    resumed = state_with(STEPS, END).resume(TargetLookup(0, 521, 515, own), TOPICS)
    assert resumed == ResumePoint("displaced", 25, 135, placed=(20, 515))
    in_its_place = Own(7, 3, 10, 12, 510, 512)
    resumed = state_with(STEPS, END).resume(TargetLookup(0, 515, 510, in_its_place), TOPICS)
    assert resumed == ResumePoint("found", 13, 123, lost=7, placed=(10, 510))


def test_what_both_ends_have_lost_is_sent_again_from_where_the_source_has_it_now():
    steps = (Step(0, 100, 7, 500), Step(10, 104, 8, 510))  # it went back to 104, in another epoch
    resumed = state_with(steps, End(20, 114, 520)).resume(TargetLookup(0, 508, 0, Own(7, 3, 0, 7, 500, 507)), TOPICS)
    assert resumed == ResumePoint("found", 8, 104, lost=12, placed=(0, 500))


def test_the_epoch_of_what_was_passed_over_is_written_down():
    """Else nobody could ask whether the source still has it, and what comes there instead would be passed over, too."""
    road = Road([])
    road.state.pass_over(5, EpochStart(2, 3))
    assert road.state.epoch_starts == [(2, 3)]
    road.write()
    assert road.read().epoch_starts == [(2, 3)]
    road.state.go_back(1, EpochStart(0, 1))
    road.write()
    assert road.read().epoch_starts == [(0, 1)]
    road.state.go_back(0)
    road.write()
    assert road.read().epoch_starts == []


def test_a_batch_over_the_end_of_the_sequences():
    records = SEQUENCES - 3
    state = state_with(STEPS[:1], End(records, 100 + records, 500 + records))
    seen = TargetLookup(0, 505 + records, 0, Own(PRODUCER, 3, records, 1, 500 + records, 504 + records))
    assert state.resume(seen, TOPICS) == ResumePoint(
        "found", records + 5, 105 + records, placed=(records, 500 + records)
    )


def test_what_steps_do_not_tell_is_not_guessed():
    known = OffsetMap(STEPS[1:], END)
    earlier = TargetLookup(0, 530, 0, Own(7, 2, 4, 9, 502, 504))
    with pytest.raises(StepsMissing, match="505 lies below the steps that are held"):
        resume(TOPICS, TOPICS, Session(7, 3, 0), known, earlier, holds_all=False)
    with pytest.raises(StepsMissing, match="source offset of record 5"):
        resume(TOPICS, TOPICS, Session(7, 3, 0), known, earlier._replace(last=Own(7, 3, 0, 4, 500, 504)))
    with pytest.raises(StateError, match="began later"):
        resume(TOPICS, TOPICS, Session(7, 3, 20), known, earlier._replace(last=Own(7, 3, SEQUENCES - 5, 4, 500, 509)))


def test_many_steps_are_kept_in_records_of_their_own_and_the_last_in_memory():
    source = [(offset * 2, 0) for offset in range(12 * CHUNK_STEPS)]
    road = Road(source)
    most = 0
    while road.ahead():
        for _ in range(5):
            road.send(20)
        road.arrive_all()
        most = max(most, len(road.state.map.steps))
        size = max(len(value) for value in road.topic.values())
    road.drain()
    assert most <= 6 * CHUNK_STEPS
    assert size < 20 * CHUNK_STEPS
    assert [read.map.steps[-1] for read in (road.read(), road.read(None))] == [road.state.map.steps[-1]] * 2
    assert len(road.read().map.steps) <= 2 * CHUNK_STEPS
    road.check_map(road.read(None).map, [(at, entry.source) for at, entry in enumerate(road.target) if entry.source])
    road.state.forget_below(len(road.target) - CHUNK_STEPS)
    road.write()
    assert len(road.topic) <= 3
    assert road.read(None).map.steps == road.read().map.steps


def test_a_source_that_lost_its_end_is_mapped_under_its_new_epoch():
    road = Road([(offset, 0) for offset in range(10)])
    road.drain()
    road.state.go_back(6)
    road.at = 6
    road.source = [*road.source, (6, 1), (7, 1)]
    road.send(2) if road.ahead()[0][1] == 1 else None
    runs = road.state.send([(6, 2)], 1)
    road.write()
    assert road.state.may_go(runs)
    assert road.state.batch_acked(len(road.target)) == 0
    assert road.state.map.to_target(6) == OffsetAtOtherEnd(len(road.target), True)
    assert road.state.map.to_source(7) == OffsetAtOtherEnd(6, True)
    assert [(start.offset, start.leader_epoch) for start in road.state.epoch_starts] == [(0, 0), (6, 1)]


def test_an_older_answer_moves_nothing():
    road = Road([(offset, 0) for offset in range(10)])
    road.send(3)
    road.arrive()
    road.send(3)
    before = road.state.map.end
    assert road.state.batch_acked(0) == -4
    assert road.state.map.end == before


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        (b"head:t:0", b'{"version":4}', "of version 4, and this mirror knows 3: install"),
        (b"head:t:0", b'{"version":1}', "cannot be read: KeyError"),
        (b"head:t:0", b"{", "cannot be read"),
        (b"steps:t:0", b"{}", "no mirror of this version writes"),
        (None, b"{}", "no mirror of this version writes"),
    ],
)
def test_what_cannot_be_gone_by_is_refused(key, value, sentence):
    with pytest.raises(StateError, match=sentence):
        Reading().take(key, value)


def test_missing_steps_are_noticed():
    reading = Reading()
    reading.take(*head_record(PARTITION, Head(TOPICS, 7, 3, 0, 0, 1, 2, END)))
    with pytest.raises(StateError, match="readings-0 lacks steps of number 1"):
        reading.partitions()
    reading.take(*steps_record(PARTITION, 1, STEPS))
    assert reading.partitions()[PARTITION].steps == list(STEPS)
