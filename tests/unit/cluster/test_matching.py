"""A follower's log is matched to the leader's by epochs, fetch by fetch, until they agree."""

from __future__ import annotations

from random import Random

import pytest

from edge_broker.cluster.effects import LostRange
from edge_broker.cluster.inter_broker_messages import EpochEnd
from edge_broker.cluster.partition.follower_state import lost_by, truncation_end
from edge_broker.cluster.partition.leader_state import divergence
from edge_broker.cluster.state.replica_log_view import last_epoch
from tests.simulation.cluster_disk import Record, SimLog


def log_of(*epochs: int) -> SimLog:
    """A log whose record at each offset is of that epoch; values tell epochs apart, as one leader wrote each."""
    log = SimLog()
    for offset, epoch in enumerate(epochs):
        log.append((Record(epoch, epoch * 1000 + offset),))
    return log


def match(leader: SimLog, epoch: int, follower: SimLog) -> list[int]:
    """Where the follower truncates to, fetch by fetch."""
    ends = []
    while (found := divergence(leader, epoch, last_epoch(follower), follower.log_end_offset, in_sync=True)) is not None:
        end = truncation_end(follower, found)
        assert end < follower.log_end_offset, "each step takes something"
        follower.begin_truncation(end)
        ends.append(end)
    return ends


def test_a_log_that_agrees_stays() -> None:
    assert match(log_of(1, 1, 2), 3, log_of(1, 1)) == []
    assert match(log_of(1, 1, 2), 3, log_of(1, 1, 2)) == []
    assert match(log_of(1, 1, 2), 3, log_of()) == []


def test_what_the_leader_never_had_goes() -> None:
    assert match(log_of(1, 1, 3), 3, log_of(1, 1, 2, 2)) == [2]
    assert match(log_of(1, 1), 1, log_of(1, 1, 1)) == [2]


def test_two_leaders_that_lost_each_others_records_need_two_steps() -> None:
    """As KIP-279 has it: one step alone would leave offset 2 with a record of epoch 2."""
    leader, follower = log_of(1, 1, 1, 1, 3), log_of(1, 1, 2)
    assert divergence(leader, 3, 2, 3, in_sync=True) == EpochEnd(1, 4)
    assert match(leader, 3, follower) == [2]
    assert follower.records == leader.records[:2]


def test_nothing_in_common_leaves_nothing() -> None:
    assert match(log_of(5, 5), 5, log_of(3, 3, 4))[-1] == 0


def test_an_epoch_without_a_record_is_nobodys_last() -> None:
    log = log_of(1, 1)
    log.begin_epoch(2)
    assert last_epoch(log) == 1
    log.append((Record(1, 1002),))  # of a leader that has more of epoch 1
    assert last_epoch(log) == 1
    assert log.epochs.starts == ((1, 0),)


def test_a_log_whose_records_were_all_removed_takes_what_its_leader_has_of_an_older_epoch() -> None:
    """It led an epoch that its leader never saw, and removed that; a cut would not end where its log starts."""
    leader, follower = log_of(1, 1, 2, 2), log_of(1, 3)
    follower.remove_front(2)
    assert last_epoch(follower) == -1
    assert match(leader, 4, follower) == [], "without a record it agrees wherever the leader's log covers its end"
    follower.append(leader.records[2:])
    assert match(leader, 4, follower) == []
    assert (last_epoch(follower), follower.records[2:]) == (2, leader.records[2:])


def test_a_log_without_records_waits_for_a_leader_that_ends_before_it() -> None:
    leader, follower = log_of(2), log_of(1, 3)
    follower.remove_front(2)
    assert divergence(leader, 4, last_epoch(follower), 2, in_sync=True) == EpochEnd(-1, 0)
    leader.append((Record(2, 2001),))
    assert divergence(leader, 4, last_epoch(follower), 2, in_sync=True) is None


def test_a_log_without_records_that_no_set_names_differs_from_one_that_starts_before_it() -> None:
    """Behind an unclean election others may have been shown what it has not, before where it starts."""
    leader, follower = log_of(1, 1, 2, 2), log_of(1, 3)
    follower.remove_front(2)
    assert divergence(leader, 4, last_epoch(follower), 2, in_sync=False) == EpochEnd(-1, 0)
    leader.remove_front(1)
    assert divergence(leader, 4, last_epoch(follower), 2, in_sync=False) == EpochEnd(-1, 1)
    leader.remove_front(2)
    assert divergence(leader, 4, last_epoch(follower), 2, in_sync=False) is None


def test_a_log_that_holds_nothing_but_what_its_leader_lost_matches() -> None:
    leader = log_of(1, 1)
    leader.rot(0)
    leader.own_up()
    assert leader.lost_until(0) == 1
    assert divergence(leader, 4, -1, 1, in_sync=False) is None
    assert divergence(leader, 4, -1, 2, in_sync=False) == EpochEnd(-1, 0)


def test_what_a_truncation_takes_is_told_epoch_by_epoch() -> None:
    assert lost_by(log_of(1, 1, 2, 2, 4), 1) == (LostRange(1, 1, 2), LostRange(2, 2, 4), LostRange(4, 4, 5))
    assert lost_by(log_of(1, 1), 2) == ()


@pytest.mark.parametrize("seed", range(300))
def test_any_two_logs_of_one_history_agree_in_the_end(seed: int) -> None:
    """Leaders of rising epochs each begin with some log that is there, and one follower takes some of it."""
    dice = Random(seed)
    logs = [SimLog() for _ in range(3)]
    for epoch in range(1, 7):
        leader = dice.choice(logs)
        leader.begin_epoch(epoch)
        for _ in range(dice.randrange(4)):
            leader.append((Record(epoch, epoch * 1000 + leader.log_end_offset),))
        for follower in logs:
            if follower is leader or dice.random() < 0.5:
                continue
            match(leader, epoch, follower)
            common = follower.log_end_offset
            assert follower.records == leader.records[:common], "a log that agrees by epochs agrees by records"
            follower.append(leader.records[common : common + dice.randrange(5)])
