"""The states of a partition stream: each transition of the table is taken, every other one is an error."""

import itertools

import pytest

from kafka_wire.partitions import TopicPartition
from mirror.partition.send_state import (
    BACKING_OFF,
    CHANGING_CONNECTION,
    CREATING_TOPIC,
    DRAINING,
    GONE,
    NEXT,
    RESOLVING,
    SENDING,
    STARTING_SESSION,
    SendProgress,
    SendState,
)
from mirror.partition.stream import PartitionStream

PAIRS = list(itertools.product(SendState, SendState))


def stream_in(state: SendState) -> SendProgress:
    stream = SendProgress()
    stream.send_state = state
    return stream


def test_a_stream_begins_with_its_topic():
    stream = PartitionStream(TopicPartition("t", 0), "lab.t", {"cleanup.policy": "delete"})
    assert stream.send_state is CREATING_TOPIC


def test_the_table_names_every_state():
    assert set(NEXT) == set(SendState)
    reached = {state for states in NEXT.values() for state in states}
    assert reached == set(SendState)


@pytest.mark.parametrize(("before", "after"), [(one, two) for one, two in PAIRS if two in NEXT[one]])
def test_a_transition_of_the_table_is_taken(before: SendState, after: SendState):
    stream = stream_in(before)
    stream.enter(after)
    assert stream.send_state is after


@pytest.mark.parametrize(("before", "after"), [(one, two) for one, two in PAIRS if two not in NEXT[one]])
def test_any_other_transition_is_a_bug(before: SendState, after: SendState):
    stream = stream_in(before)
    with pytest.raises(AssertionError, match=f"SendState.{before.name} is not followed by"):
        stream.enter(after)
    assert stream.send_state is before


@pytest.mark.parametrize("state", list(SendState))
def test_a_stream_becomes_unsure_only_while_a_session_is_in_use(state: SendState):
    stream = stream_in(state)
    stream.mark_unsure()
    assert stream.send_state is (DRAINING if state in (SENDING, CHANGING_CONNECTION, BACKING_OFF) else state)


@pytest.mark.parametrize("state", list(SendState))
def test_what_readers_ask_of_a_state(state: SendState):
    stream = stream_in(state)
    assert stream.has_session is (state not in (CREATING_TOPIC, STARTING_SESSION, GONE))
    assert stream.is_unsure is (state in (DRAINING, RESOLVING))
    assert stream.is_gone is (state is GONE)


def test_a_backoff_ends():
    stream = stream_in(SENDING)
    stream.back_off()
    assert stream.send_state is BACKING_OFF
    stream.end_backoff()
    assert stream.send_state is SENDING


@pytest.mark.parametrize("begins_unsure", [False, True])
def test_a_backoff_goes_on_while_a_batch_is_resolved(begins_unsure: bool):
    stream = stream_in(SENDING)
    steps = [stream.mark_unsure, stream.back_off] if begins_unsure else [stream.back_off, stream.mark_unsure]
    for step in steps:
        step()
    stream.enter(RESOLVING)
    stream.resume_sending()
    assert stream.send_state is BACKING_OFF
    stream.end_backoff()
    assert stream.send_state is SENDING


@pytest.mark.parametrize("state", [DRAINING, RESOLVING, STARTING_SESSION])
def test_a_backoff_that_is_over_meanwhile_leaves_no_trace(state: SendState):
    stream = stream_in(state)
    stream.back_off()
    stream.end_backoff()
    assert stream.send_state is state
    stream.send_state = RESOLVING
    stream.resume_sending()
    assert stream.send_state is SENDING


def test_a_stream_that_is_dropped_stays_dropped():
    stream = stream_in(GONE)
    for event in (stream.mark_unsure, stream.back_off, stream.end_backoff):
        event()
        assert stream.send_state is GONE
    with pytest.raises(AssertionError):
        stream.resume_sending()
