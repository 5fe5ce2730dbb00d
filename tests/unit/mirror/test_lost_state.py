"""A state topic that was deleted while a mirror runs is written again, whole, so that the next start can read it."""

from __future__ import annotations

import pytest

from mirror.partition.offset_map import End, Step
from mirror.partition.state_records import CHUNK_STEPS, Head, Reading, StateError, StoredState, Topics
from mirror.partition.target_state import HELD_CHUNKS_MAX, PartitionState
from mirror.session import producer_sessions
from tests.unit.mirror.ends import TP, MemorySource, MemoryTarget, record
from tests.unit.mirror.test_replicator import Run

TOPICS = Topics("lab.readings", "s", "t")


def written(state):
    """Return what a reader of the next start finds of a state that is written to an empty topic."""
    reading = Reading()
    for key, value in state.write().records:
        reading.take(key, value)
    return reading.partitions()[state.partition]


@pytest.mark.parametrize("count", [1, CHUNK_STEPS, CHUNK_STEPS + 1, 2 * CHUNK_STEPS + 5])
@pytest.mark.parametrize("first_chunk", [0, 3])
def test_all_held_steps_are_written_with_the_head(count, first_chunk):
    steps = [Step(10 * n, 11 * n, 0, 12 * n) for n in range(count)]
    held = first_chunk + 2
    last = held + (count - 1) // CHUNK_STEPS
    head = Head(TOPICS, 7, 0, 0, first_chunk, last, (count - 1) % CHUNK_STEPS + 1, End(10 * count, 0, 0))
    state = PartitionState(TP, TOPICS, StoredState(head, held, list(steps)))
    state.store_again()
    stored = written(state)
    assert stored.head.first_chunk == held
    assert stored.steps[-min(count, 2 * CHUNK_STEPS) :] == stored.steps
    assert stored.steps[-1] == steps[-1]
    assert (last - held + 1) <= HELD_CHUNKS_MAX


def test_without_steps_the_head_alone_is_written():
    state = PartitionState(TP, TOPICS, StoredState(Head(TOPICS, 7, 0, 0, 0, 0, 0, End(0, 0, 0)), 0, []))
    state.store_again()
    assert written(state).steps == []


@pytest.mark.parametrize("row", ["[true,0,0,0]", "[0,0,false,0]", "[0.5,0,0,0]"])
def test_a_step_with_a_number_that_is_none_cannot_be_read(row):
    """Python counts true as 1: offsets would be translated by it."""
    state = PartitionState(
        TP, TOPICS, StoredState(Head(TOPICS, 7, 0, 0, 0, 0, 1, End(10, 11, 12)), 0, [Step(1, 2, 0, 3)])
    )
    state.store_again()
    reading = Reading()
    for key, value in state.write().records:
        reading.take(key, value.replace(b"[1,2,0,3]", row.encode()))
    with pytest.raises(StateError, match=r"The steps of number 0 of .* cannot be read: .* has a number that is none"):
        reading.partitions()


async def test_one_that_is_deleted_while_nothing_is_written_is_found_missing_named_and_written_again(monkeypatch):
    monkeypatch.setattr(producer_sessions, "LOOK_S", 0.01)
    source = MemorySource([record(o) for o in [*range(10), *range(15, 30)]])
    target, deleted = MemoryTarget(), []
    run = Run(source, target)

    def is_written_again():
        if run.acked == 30 and not deleted:
            deleted.append(dict(target.state))
            target.delete_state()
        return deleted and target.state.keys() == deleted[0].keys() and run.replicator.notes()

    await run.until(is_written_again)
    (note,) = run.replicator.notes()
    assert "was deleted at the target while this mirror ran" in note
    assert run.replicator.trouble() == ""
    source.log += [record(o) for o in range(30, 40)]
    source.end = 40
    again = Run(source, target)
    await again.until_safe(40)
    assert [int(headers[0][1]) for _, headers, _ in target.got] == [*range(10), *range(15, 40)]
    assert again.replicator.notes() == []
