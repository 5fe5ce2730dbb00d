"""Where a partition is gone on with after a life with transactions: its stored end is exact, whatever the log has."""

from __future__ import annotations

import pytest

from kafka_wire.transactions.last_batch_lookup import Own
from mirror.partition.offset_map import End, OffsetMap, Step
from mirror.partition.resume_rules import ResumePoint, Session, TargetLookup, resume
from mirror.partition.state_records import Reading, Topics
from mirror.partition.target_state import PartitionState

TOPICS = Topics("t", "source", "target")
STEPS = [Step(0, 100, 1, 1), Step(10, 110, 1, 12)]  # a marker between them at the target
KNOWN = OffsetMap(STEPS, End(20, 120, 22))
LIFE = Session(7, 3, 0, True)


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (Own(7, 3, 10, 19, 12, 21), ResumePoint("found", 20, 120)),  # what was committed last
        (Own(7, 3, 20, 29, 23, 32), ResumePoint("position", 20, 120)),  # sent behind it, and aborted
        (Own(7, 4, 0, 4, 40, 44), ResumePoint("position", 20, 120)),  # by a life whose head was never committed
        (Own(7, 3, 0, 9, 1, 10), ResumePoint("found", 10, 110, 10)),  # the target has lost its end
    ],
)
def test_what_lies_behind_the_stored_end_of_a_life_with_transactions_does_not_count(last, expected):
    assert resume(TOPICS, TOPICS, LIFE, KNOWN, TargetLookup(0, last.last_offset + 2, 12, last)) == expected


def test_the_same_batch_of_a_life_without_counts():
    last = Own(7, 3, 20, 29, 23, 32)
    assert (
        resume(TOPICS, TOPICS, LIFE._replace(is_transactional=False), KNOWN, TargetLookup(0, 34, 12, last)).records
        == 30
    )


def test_a_stored_head_tells_of_which_kind_its_life_was():
    for is_transactional in (True, False):
        state = PartitionState(("s", 0), TOPICS)
        found = state.resume(TargetLookup(0, 0, 0, None), TOPICS)
        state.begin(TOPICS, 7, 3, found, 0, is_transactional=is_transactional)
        assert state.may_go(state.send([(5, 2)], 1)) == is_transactional
        reading = Reading()
        for key, value in state.write().records:
            reading.take(key, value)
        again = PartitionState(("s", 0), TOPICS, reading.partitions()["s", 0])
        assert again.session == Session(7, 3, 0, is_transactional)
