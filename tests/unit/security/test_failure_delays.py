"""Delays after failed log-ins: they grow by user and address, end with a success, and take bounded memory."""

from __future__ import annotations

import pytest

from edge_broker.security.failure_delays import (
    ENTRIES_MAX,
    FAILURES_MAX,
    FREE_FAILURES,
    STEP_MS_MAX,
    WAIT_MS_MAX,
    WAITING_MAX,
    FailureDelays,
    TooMany,
)

FIRST_MS, HOST, OTHER = 100, "10.0.0.9", "10.0.0.10"


def after(failures: int, *, user: str = "ann", host: str = HOST, now_ms: int = 0) -> FailureDelays:
    delays = FailureDelays(FIRST_MS)
    for _ in range(failures):
        delays.login_failed(user, host, now_ms)
    return delays


def test_the_first_failures_delay_nothing_and_each_one_after_them_doubles_the_step() -> None:
    assert after(FREE_FAILURES).admit("ann", HOST, 0) == 0
    waits = [after(FREE_FAILURES + more).admit("ann", HOST, 0) for more in range(1, 9)]
    assert waits == [200, 400, 800, 1600, 3200, STEP_MS_MAX, STEP_MS_MAX, STEP_MS_MAX]


def test_nobody_else_waits() -> None:
    """The owner elsewhere, and other users at the same address."""
    delays = after(1000)
    assert delays.admit("ann", OTHER, 0) == delays.admit("bob", HOST, 0) == 0
    assert delays.admit("ann", HOST, 0) > 0


def test_a_guesser_with_many_connections_has_a_guess_per_step() -> None:
    delays, now_ms, guesses = after(1000), 0, 0
    while now_ms < 3_600_000:
        for _ in range(20):
            try:
                wait_ms = delays.admit("ann", HOST, now_ms)
            except TooMany:
                break
            assert wait_ms <= WAIT_MS_MAX
            guesses += 1
            delays.login_failed("ann", HOST, now_ms + wait_ms)
        now_ms += 1000
    assert guesses <= 3_600_000 / STEP_MS_MAX + 2


def test_a_success_ends_the_delays() -> None:
    delays = after(1000)
    delays.login_succeeded("ann", HOST)
    assert delays.admit("ann", HOST, 0) == 0
    assert len(delays) == 0


def test_failures_are_forgotten_one_by_one() -> None:
    delays = after(FREE_FAILURES + 3)
    assert delays.admit("ann", HOST, 3 * STEP_MS_MAX) == 0
    assert after(10**4).admit("ann", HOST, FAILURES_MAX * STEP_MS_MAX) == 0


def test_what_is_kept_is_bounded_and_the_oldest_goes_first() -> None:
    delays = after(FREE_FAILURES + 5)
    for number in range(ENTRIES_MAX):
        delays.login_failed(f"{number}" * 1000, OTHER, 0)
    assert len(delays) == ENTRIES_MAX
    assert delays.admit("ann", HOST, 0) == 0


def test_few_wait_whatever_the_number_of_users_and_one_whose_turn_is_over_counts_no_more() -> None:
    delays = FailureDelays(FIRST_MS)
    users = [f"user {number}" for number in range(WAITING_MAX + 1)]
    for user in users:
        for _ in range(FREE_FAILURES + 1):
            delays.login_failed(user, HOST, 0)
    for user in users[:-1]:
        assert delays.admit(user, HOST, 0) > 0
    with pytest.raises(TooMany):
        delays.admit(users[-1], HOST, 0)
    assert delays.admit("somebody else", HOST, 0) == 0
    assert delays.admit(users[-1], HOST, 10 * STEP_MS_MAX) == 0


def test_without_a_first_step_nothing_is_delayed_or_kept() -> None:
    delays = FailureDelays(0)
    for _ in range(1000):
        delays.login_failed("ann", HOST, 0)
    assert delays.admit("ann", HOST, 0) == len(delays) == 0


def test_a_name_that_is_no_text_has_an_entry_too() -> None:
    assert after(FREE_FAILURES + 1, user="\udcff").admit("\udcff", HOST, 0) > 0
