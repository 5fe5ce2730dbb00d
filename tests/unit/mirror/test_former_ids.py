"""Batches of a producer id that the mirror had before are its own still, also after sessions without a batch.

The target gives another producer id when it has forgotten the transactional id, its epochs end, or a spare one begins.
Does not contain: verdicts (test_resuming.py).
"""

from __future__ import annotations

import pytest

from mirror.partition.resume_rules import ResumePoint
from mirror.partition.state_records import Reading, StateError, Topics
from mirror.partition.target_state import FORMER_MAX, PartitionState
from tests.unit.mirror.ends import TP, MemorySource, MemoryTarget, record
from tests.unit.mirror.test_replicator import Run
from tests.unit.mirror.test_transacting import TransactionalTarget, run_of

HEAD = b"head:readings:0"
TOPICS = Topics("lab.readings", "s", "t")
POSITION = ResumePoint("position")


def read_again(state):
    """Return the state that a mirror reads which starts after this one has stored it."""
    reading = Reading()
    write = state.write()
    for key, value in write.records:
        reading.take(key, value)
    state.write_stored(write)
    return PartitionState(TP, TOPICS, reading.partitions()[TP])


def after(*producers, state=None):
    """Return a state that these producers have had, one after the other, without a batch."""
    state = state or PartitionState(TP, TOPICS)
    for epoch, producer_id in enumerate(producers):
        state.begin(TOPICS, producer_id, epoch, POSITION, 0)
    return state


@pytest.mark.parametrize(
    ("producers", "known"),
    [
        ([], set()),
        ([7], {7}),
        ([7, 7], {7}),
        ([7, 8], {7, 8}),
        ([7, 8, 9], {7, 8, 9}),
        ([7, 8, 7, 8, 7], {7, 8}),
        (range(20), set(range(20 - FORMER_MAX - 1, 20))),
        ([0, *range(1, FORMER_MAX), 0, *range(100, 100 + FORMER_MAX)], {0, *range(100, 100 + FORMER_MAX)}),
    ],
)
def test_the_last_producer_ids_are_known_and_stored(producers, known):
    state = after(*producers)
    assert state.producer_ids == known
    assert read_again(state).producer_ids == known


def test_one_after_the_other_is_stored_by_mirrors_that_send_nothing():
    state = PartitionState(TP, TOPICS)
    for producer_id in (7, 8, 9):
        state = read_again(after(producer_id, state=state))
    assert state.producer_ids == {7, 8, 9}


def test_a_head_of_a_version_before_knows_its_own():
    _, value = after(7).write().records[-1]
    assert b"former_ids" not in value
    reading = Reading()
    reading.take(HEAD, value)
    assert PartitionState(TP, TOPICS, reading.partitions()[TP]).producer_ids == {7}


@pytest.mark.parametrize("bad", [b"[true]", b'["7"]', b"7", b"null", b"[7.5]"])
def test_former_ids_that_are_none_are_refused(bad):
    _, value = after(7, 8).write().records[-1]
    with pytest.raises(StateError):
        Reading().take(HEAD, value.replace(b'"former_ids":[7]', b'"former_ids":' + bad))


async def until_stored(run, target, producer_id):
    """Have a mirror begin, and stop before it has anything to send."""
    await run.until(lambda: b'"producer_id":%d,' % producer_id in target.state.get(HEAD, b""))


@pytest.mark.parametrize("sessions", [1, 3])
async def test_a_session_without_a_batch_under_another_producer_id_doubles_nothing(sessions):
    source, target = MemorySource([record(offset) for offset in range(30)]), MemoryTarget()
    await Run(source, target).until_safe(30)
    for producer_id in range(8, 8 + sessions):
        target.producer_id = producer_id
        await until_stored(Run(source, target), target, producer_id)
    source.log += [record(offset) for offset in range(30, 40)]
    source.end = 40
    run = Run(source, target)
    await run.until_safe(40)
    assert [int(headers[0][1]) for _, headers, _ in target.got] == list(range(40))
    assert run.metrics.duplicates._value.get() == 0


@pytest.mark.parametrize("then", [True, False])
async def test_so_in_transactions_and_from_these_to_none(then):
    source, target = MemorySource([record(offset) for offset in range(30)]), TransactionalTarget()
    await run_of(source, target).until(lambda: len(target.committed) == 30)
    for producer_id in (8, 9):
        target.producer_id = producer_id
        run = run_of(source, target, transactions=then)
        if then:  # a head is committed with records alone
            await run.until(lambda run=run: run.acked == 30)
        else:
            await until_stored(run, target, producer_id)
    source.log += [record(offset) for offset in range(30, 40)]
    source.end = 40
    await run_of(source, target, transactions=then).until(lambda: len(target.committed) >= 40)
    assert target.committed == list(range(40))
