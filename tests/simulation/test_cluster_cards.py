"""Small cards and changes of leader at the end of schedules; rules about them that are broken are found."""

from __future__ import annotations

import pytest

from edge_broker.cluster.partition import room
from edge_broker.cluster.partition.leader_state import Leading
from edge_broker.cluster.partition.partition import Partition
from edge_broker.storage.maintenance.full_disk_marker import FullDiskMarker
from tests.simulation.cluster_cards_broken import (
    BROKEN_CARDS,
    SEEDS_OF_CARDS,
    begin_anew_with_each_registration,
    grant_at_once,
    remember_nothing,
)
from tests.simulation.cluster_runs import run_seed

SEEDS_MAX = 200
LOST_FETCH = 87  # the only fetch that reports a full disk to the next leader is lost, and then there is room
LATE_FETCH = 200034  # a late fetch reports a card as full that has room again
FORGETFUL_START = 60000049  # the leader changes while a board restarts whose disk was full a moment ago
NO_MARKER = 3  # a board restarts under a leader that has heard of its full disk
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


def test_a_restarted_board_gets_no_lead_back_from_a_leader_that_never_heard_of_its_full_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert run_seed(FORGETFUL_START).failure == ""
    monkeypatch.setattr(FullDiskMarker, "update", remember_nothing)
    assert "again on request, and was full a moment ago" in run_seed(FORGETFUL_START).failure


def test_a_leader_remembers_the_full_disk_of_a_board_that_restarts_and_could_make_no_marker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FullDiskMarker, "update", remember_nothing)
    assert run_seed(NO_MARKER).failure == ""
    monkeypatch.setattr(Leading, "_follower", begin_anew_with_each_registration)
    assert "again on request, and was full a moment ago" in run_seed(NO_MARKER).failure


@pytest.mark.parametrize("rule", BROKEN_CARDS)
def test_a_rule_about_full_cards_that_is_broken_is_found(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*BROKEN_CARDS[rule])
    seeds = (SEEDS_OF_CARDS[rule], *range(SEEDS_MAX))
    assert any(run_seed(seed).failure for seed in seeds), f"{len(seeds)} schedules do not find it"


@pytest.mark.parametrize("rule", SEEDS_OF_CARDS)
def test_the_same_seed_is_well_where_the_rule_about_full_cards_holds(rule: str) -> None:
    assert run_seed(SEEDS_OF_CARDS[rule]).failure == ""
