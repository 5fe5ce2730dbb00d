"""Schedules of the mirror hold, a seed replays one, and rules that are broken on purpose are found."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.mirror_broken import BROKEN, BROKEN_WITH_TRANSACTIONS, FOUND_BY
from tests.simulation.mirror_runs import run_seed

# The suite `schedules` plays thousands in CI, from another seed on.
FIRSTS = [0, *(pytest.param(first, marks=pytest.mark.night) for first in (50, 100))]
SEEDS_MAX = 500
FOUND = {
    261234425633: "several batches behind an old one, by which the target forgets the producer",
    1000208: "a state topic fenced anew by the older of two mirrors, which wrote its older state over the newer",
    1000669: "the same, before anything else was stored",
    3006588: "a source that lost what had been passed over: of which epoch that was stood in no state",
    5998: "a partition with nothing left to send stayed in trouble until its next record",
    29624: "a topic made anew at once: its record waited for a write that the lane before it was told of",
}
"""Seeds that have failed, and what was wrong."""
FOUND_WITH_TRANSACTIONS = {
    143: "a commit that was asked for again came late, and ended what was begun behind it under the same epoch",
    675: "a transaction whose last record was put aside was not committed until another one came",
    789: "where a source that lost its end was gone back to, forgotten with the transaction that broke off",
    7130: "a transaction that timed out stayed a trouble though nothing of it was left to be sent",
    29334: "a commit that was not answered at once stayed a trouble until the next one",
    502534: "a topic that was made anew and begun by another mirror meanwhile began again where its log began by then",
    601415: "a broker that was not reached stayed a trouble once another mirror had the word",
    4770: "a lane that asked for a transaction while another had all begin anew was left behind until its next record",
    866: "a transaction was committed without a batch that it had, while its suspect asked for the broker's limit",
    9401123: "a batch that closes its connection was never taken in two where a topic made again began with it",
    3004447: "a mirror that was stopped while it asked how a transaction had ended wrote over what had no outcome",
}


FOUND_HARD = {
    25: (False, "what was read of a new source topic by its name, before its id was known, came twice"),
    101: (False, "the same, of a partition that had nothing before"),
    164: (True, "a topic that was deleted at the target was not made anew, as no transaction takes it"),
}
"""The same of --hard, with or without transactions."""


@pytest.mark.parametrize("first", FIRSTS)
def test_everything_arrives_once_in_any_schedule(first: int) -> None:
    failures = [(one.seed, one.failure) for one in map(run_seed, range(first, first + 50)) if one.failure]
    assert failures == []


@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found_once_stays_mended(seed: int) -> None:
    assert run_seed(seed, transactions=False).failure == ""


@pytest.mark.parametrize("seed", FOUND_WITH_TRANSACTIONS)
def test_what_was_found_with_transactions_stays_mended(seed: int) -> None:
    assert run_seed(seed, transactions=True).failure == ""


@pytest.mark.parametrize("seed", FOUND_HARD)
def test_what_was_found_in_hard_schedules_stays_mended(seed: int) -> None:
    assert run_seed(seed, hard=True, transactions=FOUND_HARD[seed][0]).failure == ""


def test_a_seed_says_all() -> None:
    assert [run_seed(seed) for seed in range(20)] == [run_seed(seed) for seed in range(20)]


@pytest.mark.parametrize("rule", BROKEN)
def test_a_rule_that_is_broken_is_found(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*BROKEN[rule])
    seeds = [FOUND_BY[rule]] if rule in FOUND_BY else []
    found = next((seed for seed in [*seeds, *range(SEEDS_MAX)] if run_seed(seed).failure), None)
    assert found is not None, f"{SEEDS_MAX} schedules do not find it"


@pytest.mark.parametrize("rule", BROKEN_WITH_TRANSACTIONS)
def test_a_rule_of_transactions_that_is_broken_is_found(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (where, name, broken), seed = BROKEN_WITH_TRANSACTIONS[rule]
    assert run_seed(seed, transactions=True).failure == ""
    monkeypatch.setattr(where, name, broken, raising=False)
    assert run_seed(seed, transactions=True).failure != ""


def test_both_modes_are_played() -> None:
    """Not a proof of anything, but transactions that never end prove nothing either."""
    results = [run_seed(seed) for seed in range(480, 560)]
    ends = sum((Counter(one.transactions) for one in results), Counter())
    assert 16 < sum(bool(one.transactions) for one in results) < 64
    assert min(ends[outcome] for outcome in ("committed", "aborted", "fenced", "timed_out")) > 0
