"""The mirror's bookkeeping, against a model of a source log, a target log and a group, under any order of events.

Invariants, for every sequence of sends, acknowledgements, lost acknowledgements, commits, lost commits, producer
restarts, kills and resumes:
1. When the road is drained, every source record is at the target.
2. First occurrences at the target are in the source's order.
3. After a kill, at most the window is at the target more than once.
4. The committed position is never beyond what the target holds.
5. Counted duplicates are never fewer than the real ones, and exact for one kill and for any number of lost answers.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mirror.offsets import Commit, PartitionOffsets, read_commit

WINDOW = 8


class Road:
    """A source log with corrupt ranges that are explained, a target log, and what the group holds."""

    def __init__(self, corrupt_ranges, before):
        self.log = [offset for offset in range(40) if offset not in corrupt_ranges]
        self.end = 40
        self.target = [None] * before
        self.group = None
        self.counted = 0
        self.kills = 0
        self.under_way = None
        self.start()

    def start(self):
        if self.group is None:
            self.offsets = PartitionOffsets(0)
        else:
            self.offsets = PartitionOffsets.resume(read_commit(*self.group))
        if self.offsets.target_end is None:
            self.offsets.know_target_end(len(self.target))
        self.under_way = None

    def commit(self, *, answered):
        commit = self.offsets.next_commit(WINDOW)
        if commit is not None:
            self.group = (commit.offset, commit.metadata())
            if answered:
                self.offsets.stored(commit)

    def send(self, count):
        if self.under_way is not None:
            return
        ahead = next((o for o in self.log if o >= self.offsets.position), self.end)
        if self.offsets.position < ahead:
            self.offsets.skip(ahead)
        waiting = [o for o in self.log if self.offsets.position <= o < self.offsets.reserved][:count]
        if waiting:
            self.offsets.send(waiting[-1] + 1, len(waiting))
            self.under_way = waiting

    def arrive(self, *, answered, known=True):
        if self.under_way is None:
            return
        base = len(self.target)
        self.target += self.under_way
        if answered:
            self.counted += self.offsets.ack(base if known else None).duplicates
        else:
            self.offsets.restart()
        self.under_way = None

    def fail(self):
        if self.under_way is not None:
            self.offsets.restart()
            self.under_way = None

    def kill(self, *, arrives):
        if arrives and self.under_way is not None:
            self.target += self.under_way
        self.kills += 1
        self.start()

    def drain(self):
        for _ in range(400):
            self.send(5)
            self.arrive(answered=True)
            self.commit(answered=True)

    def there(self):
        return [offset for offset in self.target if offset is not None]

    def check(self):
        if self.group is not None:
            committed = read_commit(*self.group)
            assert {o for o in self.log if o < committed.offset} <= set(self.there())
            assert committed.sent_up_to >= committed.offset
        first = list(dict.fromkeys(self.there()))
        assert first == sorted(first)


events = st.one_of(
    st.tuples(st.just("commit"), st.booleans()),
    st.tuples(st.just("send"), st.integers(1, 6)),
    st.tuples(st.just("arrive"), st.booleans()),
    st.tuples(st.just("fail"), st.none()),
    st.tuples(st.just("kill"), st.booleans()),
)


def apply(road, name, value):
    match name:
        case "commit":
            road.commit(answered=value)
        case "send":
            road.send(value)
        case "arrive":
            road.arrive(answered=value)
        case "fail":
            road.fail()
        case "kill":
            road.kill(arrives=value)


@given(st.sets(st.integers(0, 39), max_size=20), st.integers(0, 3), st.lists(events, max_size=60))
@settings(max_examples=300, deadline=None)
def test_nothing_is_lost_and_order_is_kept(corrupt_ranges, before, steps):
    road = Road(corrupt_ranges, before)
    for name, value in steps:
        apply(road, name, value)
        road.check()
    road.drain()
    road.check()
    assert set(road.there()) == set(road.log)
    assert road.counted >= len(road.there()) - len(road.log)


@given(st.lists(events.filter(lambda event: event[0] != "kill"), max_size=40), st.booleans())
@settings(max_examples=300, deadline=None)
def test_one_kill_repeats_at_most_the_window_and_is_counted_exactly(steps, arrives):
    road = Road(set(), 2)
    for name, value in steps:
        apply(road, name, value if name != "arrive" else True)
    before = len(road.there())
    road.kill(arrives=arrives)
    road.drain()
    copies = len(road.there()) - len(set(road.there()))
    assert copies <= WINDOW
    assert copies == road.counted
    assert before <= len(road.there())


@given(st.lists(events.filter(lambda event: event[0] not in ("kill", "arrive")), max_size=40), st.integers(1, 4))
@settings(max_examples=200, deadline=None)
def test_lost_answers_are_counted_exactly(steps, losses):
    """A producer made anew after an answer was lost: the batch is there twice, and counted."""
    road = Road(set(), 0)
    road.commit(answered=True)
    for name, value in steps:
        apply(road, name, value)
        road.arrive(answered=True)
    for _ in range(losses):
        road.commit(answered=True)
        road.send(4)
        road.arrive(answered=False)
        road.send(6)
        road.arrive(answered=True)
    road.drain()
    assert len(road.there()) - len(set(road.there())) == road.counted


@given(st.integers(0, 2**62), st.integers(0, 10**6), st.one_of(st.none(), st.integers(0, 2**62)), st.text())
def test_any_metadata_is_read_and_ours_survives(offset, ahead, target_end, text):
    commit = Commit(offset, offset + ahead, target_end)
    assert read_commit(offset, commit.metadata()) == commit
    assert read_commit(offset, text).sent_up_to >= offset
