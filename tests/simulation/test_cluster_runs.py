"""Schedules of a cluster hold, on simple disks and on the broker's own storage; rules that are broken are found."""

from __future__ import annotations

import pytest

from edge_broker.cluster.state.cluster_state import Topic
from edge_broker.cluster.znodes.ownership import Users
from tests.simulation.cluster_broken import (
    BROKEN,
    BROKEN_DELETIONS,
    BROKEN_STORAGE,
    BROKEN_TOPICS,
    SEEDS,
    SEEDS_OF_STORAGE,
    break_rule,
)
from tests.simulation.cluster_runs import DELETES_OF_4, Schedule, cut_power, forget_partition, hand_over, kill, run_seed
from tests.simulation.cluster_world import World
from tests.simulation.set_back import TWINS

SEEDS_OF_LINES = {
    "boards do not compare lines": 30102,
    "what is kept is not on the disk": 30224,
    "two replicas lead in one epoch": 0,
}
SEED_OF_A_WRITE_OFF = 80
# The suite cluster-schedules plays 300 seeds in CI.
FIRSTS = [0, *(pytest.param(first, marks=pytest.mark.night) for first in (12, 24))]
SEEDS_MAX = 300
SEEDS_OF_STORAGE_MAX = 40


@pytest.mark.parametrize("first", FIRSTS)
def test_nothing_is_lost_in_any_schedule(first: int) -> None:
    failures = [(one.seed, one.failure) for one in map(run_seed, range(first, first + 12)) if one.failure]
    assert failures == []


@pytest.mark.night
def test_clusters_whose_znodes_are_the_brokers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """101956: damage goes from the front between the decision to cut it and the cut."""
    monkeypatch.setattr(World, "users", Users("boards:hash"))
    failures = [(one.seed, one.failure) for one in map(run_seed, (*range(4, 12), 101956)) if one.failure]
    assert not failures


@pytest.mark.parametrize("first", FIRSTS)
def test_nothing_is_lost_on_the_brokers_own_storage(first: int) -> None:
    results = [run_seed(seed, real=True) for seed in range(first, first + 12)]
    assert [(one.seed, one.failure) for one in results if one.failure] == []
    assert sum(result.acked for result in results) > 500


@pytest.mark.parametrize("real", [False, True], ids=["simple", "real"])
def test_a_seed_says_all(real: bool) -> None:
    assert [run_seed(seed, real=real) for seed in range(3)] == [run_seed(seed, real=real) for seed in range(3)]


def test_schedules_do_something() -> None:
    """Not a proof of anything, but a run in which nobody is answered proves nothing either."""
    results = [run_seed(seed) for seed in range(100, 106)]
    assert sum(result.acts for result in results) > 60
    assert sum(result.acked for result in results) > 500


@pytest.mark.parametrize("rule", BROKEN)
def test_a_rule_that_is_broken_is_found(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    break_rule(rule, monkeypatch.setattr)
    seeds = (SEEDS[rule], *range(SEEDS_MAX))
    assert any(run_seed(seed).failure for seed in seeds), f"{len(seeds)} schedules do not find it"


@pytest.mark.leaves(".")
@pytest.mark.parametrize("rule", [*BROKEN_TOPICS, *BROKEN_DELETIONS])
def test_a_rule_of_deleted_topics_that_is_broken_is_found(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    break_rule(rule, monkeypatch.setattr)
    seeds = (SEEDS[rule], *range(DELETES_OF_4, SEEDS_MAX, 4))
    assert any(run_seed(seed, real=rule in BROKEN_DELETIONS).failure for seed in seeds)


@pytest.mark.parametrize("rule", SEEDS)
def test_the_same_seed_is_well_where_the_rule_holds(rule: str) -> None:
    assert run_seed(SEEDS[rule], real=rule in BROKEN_DELETIONS).failure == ""


@pytest.mark.parametrize("rule", SEEDS_OF_STORAGE)
def test_the_same_seed_is_well_where_the_rule_of_the_storage_holds(rule: str) -> None:
    assert run_seed(SEEDS_OF_STORAGE[rule], real=True).failure == ""


@pytest.mark.leaves(".")
@pytest.mark.parametrize("rule", BROKEN_STORAGE)
def test_a_rule_of_the_storage_that_is_broken_is_found(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    break_rule(rule, monkeypatch.setattr)
    seeds = (SEEDS_OF_STORAGE[rule], *range(SEEDS_OF_STORAGE_MAX))
    assert any(run_seed(seed, real=True).failure for seed in seeds)


@pytest.mark.parametrize("rule", SEEDS_OF_LINES)
def test_a_rule_of_lines_that_is_broken_is_found(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of a schedule; test_set_back.py finds those that need a certain moment, too."""
    assert run_seed(SEEDS_OF_LINES[rule]).failure == ""
    monkeypatch.setattr(*TWINS[rule])
    assert run_seed(SEEDS_OF_LINES[rule]).failure


def test_a_schedule_writes_boards_off_beside_the_newest_data() -> None:
    trace = "\n".join(run_seed(SEED_OF_A_WRITE_OFF).trace)
    assert "is written off" in trace


def run_with_an_older_copy(seed: int) -> Schedule:
    schedule = Schedule(seed)
    schedule.acts = [forget_partition, kill, cut_power, hand_over]
    schedule.partitions = 2
    schedule.run()
    return schedule


@pytest.mark.parametrize("seed", range(8))
def test_a_partition_that_an_older_copy_lacks_is_served_again_with_all_that_was_acked(seed: int) -> None:
    schedule = run_with_an_older_copy(seed)
    assert schedule.acts_done >= 5
    assert schedule.world.checks.acked


def test_a_board_that_goes_on_with_what_its_topic_lacks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Topic, "gives", lambda self, partition, broker: True)
    with pytest.raises(IndexError):
        run_with_an_older_copy(1)
