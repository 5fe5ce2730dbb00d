"""Small cards and changes of leader at the end of schedules; rules about them that are broken are found."""

from __future__ import annotations

import pytest

from edge_broker.cluster.partition import room
from edge_broker.cluster.partition.partition import Partition
from tests.simulation.cluster_cards_broken import BROKEN_CARDS, SEEDS_OF_CARDS, grant_at_once
from tests.simulation.cluster_runs import run_seed

SEEDS_MAX = 200
LOST_FETCH = 87  # the only fetch that reports a full disk to the next leader is lost, and then there is room
LATE_FETCH = 200034  # a late fetch reports a card as full that has room again
LATE_REPORT = 21953044  # the fetch that reports a full disk is on its way while the board's lead is requested


def test_nothing_is_evicted_for_a_late_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_seed(LATE_FETCH, real=True).failure == ""
    monkeypatch.setattr(room, "is_surely_out", lambda follower: follower.keeps_out)
    monkeypatch.setattr(Partition, "hand_over_on_request", grant_at_once)  # else the schedule is another one
    assert "though boards [2, 3] have room" in run_seed(LATE_FETCH, real=True).failure


def test_a_board_gets_no_lead_back_though_the_one_report_of_its_full_disk_was_lost() -> None:
    assert run_seed(LOST_FETCH, real=True).failure == ""


def test_a_board_gets_no_lead_back_before_the_report_of_its_full_disk_has_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert run_seed(LATE_REPORT, real=True).failure == ""
    monkeypatch.setattr(Partition, "hand_over_on_request", grant_at_once)
    assert "again on request, and was full a moment ago" in run_seed(LATE_REPORT, real=True).failure


@pytest.mark.parametrize("rule", BROKEN_CARDS)
def test_a_rule_about_full_cards_that_is_broken_is_found(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*BROKEN_CARDS[rule])
    seeds = (SEEDS_OF_CARDS[rule], *range(SEEDS_MAX))
    assert any(run_seed(seed).failure for seed in seeds), f"{len(seeds)} schedules do not find it"


@pytest.mark.parametrize("rule", SEEDS_OF_CARDS)
def test_the_same_seed_is_well_where_the_rule_about_full_cards_holds(rule: str) -> None:
    assert run_seed(SEEDS_OF_CARDS[rule]).failure == ""
