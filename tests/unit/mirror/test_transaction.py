"""One transaction: its table of states, how much it carries, and the verdict on one that broke off."""

from __future__ import annotations

import itertools

import pytest

from mirror.link.link_model import FIRST_BYTES
from mirror.session.transaction import (
    NEXT,
    SHARE,
    TAKES_S_MIN,
    BrokenTransaction,
    Event,
    Producer,
    State,
    Transaction,
    bytes_max,
    classify,
    held_max,
    takes_s,
)

OURS = Producer(7, 3)
TIMEOUT_S = 60.0


def stood(state):
    one = Transaction(0.0, 1.0, 100, 300)
    one.state = state
    return one


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, Event)))
def test_every_event_leads_where_the_table_says_or_is_a_bug(state, event):
    one = stood(state)
    if (state, event) in NEXT:
        one.on(event)
        assert one.state is NEXT[state, event]
    else:
        with pytest.raises(KeyError):
            one.on(event)
        assert one.state is state


def test_a_commit_is_reached_by_one_way_and_never_left():
    before = {State.COMMITTED: State.COMMITTING, State.COMMITTING: State.STORING, State.STORING: State.CLOSING}
    for state, from_state in before.items():
        assert {at for (at, _), to in NEXT.items() if to is state} == {from_state}
    assert not [event for (state, event) in NEXT if state is State.COMMITTED]
    assert {to for (state, _), to in NEXT.items() if state is State.BROKEN} == {State.BROKEN}


def test_of_what_broke_it_the_first_counts():
    one = stood(State.OPEN)
    one.on(Event.BROKE, "first")
    one.on(Event.BROKE, "second")
    assert one.why == "first"
    assert not one.has_room


def test_nothing_is_taken_once_it_is_full():
    one = stood(State.OPEN)
    one.take(60, 100)
    assert (one.state, one.has_room) == (State.OPEN, True)
    one.take(70, 100)
    assert (one.state, one.has_room) == (State.CLOSING, False)


def test_the_next_one_has_memory_to_be_read_into():
    assert (held_max(900, is_fast=True), held_max(900, is_fast=False)) == (300, 900)
    one = stood(State.OPEN)
    one.take(1, 299)
    assert one.has_room
    one.take(1, 1)
    assert one.state is State.CLOSING


@pytest.mark.parametrize(
    ("round_trip_s", "timeout_s", "seconds"),
    [
        (None, 120, TAKES_S_MIN),
        (0.0005, 120, TAKES_S_MIN),
        (0.1, 120, 2.0),
        (0.6, 120, 10.0),
        (0.6, 12, 1.0),
        (9, 1, 1 / SHARE),
    ],
)
def test_it_takes_batches_for_so_long(round_trip_s, timeout_s, seconds):
    assert takes_s(round_trip_s, timeout_s) == pytest.approx(seconds)


def test_it_takes_what_the_link_carries_meanwhile():
    assert (bytes_max(None, 2.0), bytes_max(32_000.0, 10.0), bytes_max(0.1, 0.1)) == (FIRST_BYTES, 320_000, 1)


@pytest.mark.parametrize("rate", [32_000.0, 125_000.0, 1_250_000.0])
@pytest.mark.parametrize("round_trip_s", [0.001, 0.3, 0.6])
def test_it_ends_well_before_its_timeout_on_any_link(rate, round_trip_s):
    """Its bytes, one batch of 512 KiB more than fits, and four round trips are a quarter of two minutes at most."""
    seconds = takes_s(round_trip_s, 120.0)
    whole_s = (bytes_max(rate, seconds) + 512 * 1024) / rate + 4 * round_trip_s
    assert whole_s < 30.0


@pytest.mark.parametrize(
    ("told", "written", "age_s", "was_fenced", "verdict"),
    [
        (Producer(7, 3, "Ongoing"), None, 1, True, "ours"),
        (Producer(7, 3, "CompleteCommit"), None, 90, False, "ours"),
        (Producer(7, 4, "CompleteAbort"), None, 61, True, "timed_out"),
        (Producer(7, 4, "PrepareAbort"), None, 61, False, "timed_out"),
        (Producer(7, 4, "PrepareEpochFence"), None, 61, False, "timed_out"),
        (Producer(7, 4, "CompleteAbort"), None, 59, True, "another"),
        (Producer(7, 4, "Empty"), None, 61, True, "another"),
        (Producer(7, 4, "Ongoing"), None, 61, True, "another"),
        (Producer(7, 5, "CompleteAbort"), None, 61, True, "another"),
        (Producer(8, 0, "Empty"), None, 61, False, "another"),
        (Producer(7, 4, "CompleteAbort"), Producer(7, 4), 61, True, "another"),
        (None, None, 59, False, "ours"),
        (None, None, 59, True, "another"),
        (None, None, 61, True, "timed_out"),
        (None, Producer(7, 3), 61, True, "timed_out"),
        (None, Producer(6, 9), 61, True, "timed_out"),
        (None, Producer(7, 4), 61, True, "another"),
        (None, Producer(8, 0), 1, False, "another"),
    ],
)
def test_what_has_become_of_one_that_broke_off(told, written, age_s, was_fenced, verdict):
    assert classify(BrokenTransaction(OURS, age_s, was_fenced), told, written, TIMEOUT_S) == verdict
