"""Who leads when a leader is gone."""

from __future__ import annotations

from edge_broker.cluster.partition.election import (
    LogEnds,
    candidates,
    claimed_unclean,
    has_most,
    offline,
    online,
    with_leader,
    without_broker,
    without_leader,
)
from edge_broker.cluster.state.cluster_state import Identity, InSyncReplica, OfflineLog, PartitionState, Registration

A, B, C = (InSyncReplica(number, f"disk-{number}", 10 + number) for number in (1, 2, 3))
STATE = PartitionState(1, 4, (A, B, C))


def registered(*replicas: InSyncReplica) -> dict[int, Registration]:
    return {each.broker: Registration(each.broker, each.epoch, each.directory) for each in replicas}


def test_members_that_are_there_with_their_disk_may_lead_in_the_replicas_order() -> None:
    assert candidates(STATE, (3, 1, 2), registered(B, C)) == (3, 2)
    assert candidates(STATE, (3, 1, 2), registered(B, C._replace(epoch=99))) == (2, 3), "restarted, with its disk"
    again = registered(A._replace(epoch=98), B._replace(epoch=97), C._replace(epoch=99))
    assert candidates(STATE, (3, 1, 2), again) == (3, 1, 2), "as all were"
    assert candidates(STATE, (3, 1, 2), registered(B, C._replace(directory="empty"))) == (2,)


def test_who_is_not_in_the_set_may_not() -> None:
    state = PartitionState(1, 4, (A,))
    assert candidates(state, (1, 2, 3), registered(B, C)) == ()


def test_a_claim_raises_the_epoch_and_drops_who_is_gone() -> None:
    me = B._replace(epoch=50)
    assert with_leader(STATE, me, registered(me, C), 2, 5) == PartitionState(2, 5, (me, C))


def test_a_claim_keeps_as_many_as_are_needed() -> None:
    assert with_leader(STATE, B, registered(B), 2, 5) == PartitionState(2, 5, (B, C)), "what counts is on C's disk"
    assert with_leader(STATE, B, registered(B), 1, 5) == PartitionState(2, 5, (B,))


def test_leaving_and_resigning() -> None:
    assert without_broker(STATE, 1) == PartitionState(-1, 4, (B, C))
    assert without_broker(STATE, 2) == PartitionState(1, 4, (A, C))
    assert without_leader(STATE, 1) == PartitionState(-1, 4, (A, B, C))
    assert without_leader(STATE, 2) == STATE


def test_who_says_that_its_log_is_offline_is_passed_over_under_that_registration_alone() -> None:
    state = PartitionState(2, 4, (A, B, C), (OfflineLog(2, 12),))
    assert candidates(state, (3, 2, 1), registered(A, B, C)) == (3, 1)
    assert candidates(state, (3, 2, 1), registered(A, B._replace(epoch=50), C)) == (3, 1, 2), "it has started again"
    assert with_leader(state, A, registered(A, B, C), 2, 5) == PartitionState(1, 5, (A, C)), "what it said goes with it"
    assert with_leader(state, A, registered(A, B), 2, 5) == PartitionState(1, 5, (A, C)), "it is the first to go"
    assert with_leader(state, A, registered(A, B, C), 3, 5) == PartitionState(1, 5, (A, B, C), (OfflineLog(2, 12),))


def test_what_was_said_of_a_log_holds_until_it_is_taken_back_or_caught_up() -> None:
    said = offline(STATE, A)
    assert said == PartitionState(-1, 4, (A, B, C), (OfflineLog(1, 11),))
    assert offline(said, A) == said
    both = offline(said, B)
    assert (offline(both, A), offline(both, B)) == (both, both), "neither says it again for the other's sake"
    assert offline(both, A._replace(epoch=20)).offline == (OfflineLog(2, 12), OfflineLog(1, 20))
    assert online(both, 1) == offline(without_leader(STATE, 1), B)
    assert both.naming((A, B._replace(epoch=20))) == PartitionState(-1, 4, (A, B._replace(epoch=20)), said.offline)


def test_an_unclean_election_names_one_alone() -> None:
    assert claimed_unclean(offline(STATE, A), C, 5) == PartitionState(3, 5, (C,))


def test_most_is_the_later_epoch_then_the_longer_log_then_the_order() -> None:
    ends = {1: LogEnds(3, 100), 2: LogEnds(4, 7), 3: LogEnds(4, 7)}
    assert [broker for broker in ends if has_most(broker, ends, (1, 3, 2))] == [3]


def test_a_disk_is_named_by_its_directory_and_its_own_epochs() -> None:
    mine = Identity(1, "disk-1", (5, 11))
    assert mine.is_named_by(A)
    assert not mine.is_named_by(A._replace(directory="other"))
    assert not mine.is_named_by(A._replace(epoch=12)), "the disk that was registered then is another: this is a copy"
    assert mine.with_registration(20, "site").replica == InSyncReplica(1, "disk-1", 20)
