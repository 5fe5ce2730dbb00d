"""What a leader counts: only fetches of its epoch, by the registration that they name."""

from __future__ import annotations

import pytest

from edge_broker.cluster.inter_broker_messages import ReplicaFetch, ReplicaFetched
from edge_broker.cluster.partition.follower_state import Following
from edge_broker.cluster.partition.leader_state import UNDER_WAY_MS, Leading, epoch_error
from edge_broker.cluster.state.cluster_state import (
    InSyncReplica,
    OfflineLog,
    PartitionId,
    PartitionState,
    Registration,
    Topic,
)
from edge_broker.errors import ErrorCode
from tests.simulation.cluster_disk import Record, SimLog

PARTITION = PartitionId("t", 0)
ME, B = InSyncReplica(1, "one", 5), InSyncReplica(2, "two", 6)
TOPIC = Topic("id", ((1, 2, 3),), {})


def log_of(*epochs: int) -> SimLog:
    log = SimLog()
    log.append(tuple(Record(epoch, offset) for offset, epoch in enumerate(epochs)))
    return log


def fetch(replica: InSyncReplica = B, *, offset: int, synced: int, last_epoch: int = 4) -> ReplicaFetch:
    return ReplicaFetch(PARTITION, replica, 4, offset, last_epoch, synced)


@pytest.mark.parametrize(
    ("asked", "error"),
    [(4, ErrorCode.NONE), (3, ErrorCode.FENCED_LEADER_EPOCH), (5, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_fetches_of_other_epochs_are_fenced(asked: int, error: ErrorCode) -> None:
    assert epoch_error(asked, 4) is error


def test_an_answer_of_another_epoch_or_for_another_log_is_nobodys() -> None:
    following, log = Following(1, 4), log_of(4, 4)
    answer = ReplicaFetched(PARTITION, 4, 2, 4)
    assert following.is_answer_to(answer, log)
    assert not following.is_answer_to(answer._replace(leader_epoch=3), log)
    assert not following.is_answer_to(answer._replace(fetch_offset=1), log)
    assert not following.is_answer_to(answer._replace(last_fetched_epoch=3), log)


def test_a_fetch_that_is_evaluated_again_reports_nothing_and_diverges_as_a_new_one() -> None:
    leading, log = Leading(ME, 4, 0, 0.0), log_of(4, 4, 4)
    older = fetch(offset=3, synced=3)
    assert leading.fetch_received(older, log, 1.0, in_sync=True, is_new=False) is None
    assert leading.ends(3) == {ME: 3}
    leading.fetch_received(older, log, 1.0, in_sync=True)
    full = older._replace(keeps_out=True, is_full=True, was_full=True, state_id="newer")
    leading.fetch_received(full, log, 2.0, in_sync=True)
    leading.closed[B] = 2.0
    assert leading.fetch_received(older, log, 2.0 + UNDER_WAY_MS, in_sync=True, is_new=False) is None
    found = leading.followers[2]
    assert (found.keeps_out, found.is_full, found.was_full, found.state_id) == (True, True, True, "newer")
    assert (found.fetched_ms, found.kept_out_ms, leading.closed) == (2.0, 2.0, {B: 2.0})
    other = fetch(offset=3, synced=3, last_epoch=3)
    assert leading.fetch_received(other, log, 3.0, in_sync=True, is_new=False) is not None


def test_a_follower_counts_for_what_its_disk_has_and_matches() -> None:
    leading, log = Leading(ME, 4, 0, 0.0), log_of(4, 4, 4)
    assert leading.fetch_received(fetch(offset=3, synced=2), log, 1.0, in_sync=True) is None
    assert leading.ends(3) == {ME: 3, B: 2}
    other = fetch(offset=3, synced=3, last_epoch=3)
    assert leading.fetch_received(other, log, 2.0, in_sync=True) is not None, "it has another epoch's"
    assert leading.ends(3)[B] == 2


def test_every_epoch_begins_with_no_acknowledgement() -> None:
    assert Leading(ME, 5, 3, 0.0).ends(3) == {ME: 3}


def test_a_restarted_follower_counts_under_its_new_registration_alone() -> None:
    leading, log, again = Leading(ME, 4, 0, 0.0), log_of(4, 4, 4), B._replace(epoch=9)
    leading.fetch_received(fetch(offset=3, synced=3), log, 1.0, in_sync=True)
    leading.fetch_received(fetch(again, offset=3, synced=1), log, 2.0, in_sync=True)
    leading.fetch_received(fetch(offset=3, synced=3), log, 3.0, in_sync=True)  # of the former one, late
    assert leading.ends(3) == {ME: 3, again: 1}


def test_who_is_not_registered_so_does_not_join() -> None:
    leading, log = Leading(ME, 4, 1, 0.0), log_of(4, 4, 4)
    leading.fetch_received(fetch(offset=3, synced=2), log, 1.0, in_sync=True)
    assert leading.joining(TOPIC, 0, {2: Registration(2, 6, "two")}, 2) == (ME, B)
    assert leading.joining(TOPIC, 0, {2: Registration(2, 9, "two")}, 2) == (ME,)
    assert leading.joining(TOPIC, 0, {}, 2) == (ME,)
    assert leading.joining(TOPIC, 0, {2: Registration(2, 6, "two")}, 3) == (ME,)


def test_slow_and_gone_members_are_not_healthy() -> None:
    leading, log, state = Leading(ME, 4, 0, 0.0), log_of(4, 4, 4), PartitionState(1, 4, (ME, B))
    registrations = {1: Registration(1, 5, "one"), 2: Registration(2, 6, "two")}
    leading.fetch_received(fetch(offset=3, synced=3), log, 100.0, in_sync=True)
    assert leading.healthy(state, registrations, 150.0, 100.0) == 2
    assert leading.healthy(state, registrations, 250.0, 100.0) == 1
    assert leading.healthy(state, {}, 150.0, 100.0) == 1


def test_who_leaves_joins_again_by_a_fetch_alone_unless_it_has_come_under_a_later_registration() -> None:
    log, both, alone = log_of(4, 4, 4), PartitionState(1, 4, (ME, B)), PartitionState(1, 4, (ME,))
    again = B._replace(epoch=9)
    for replica, offline, joins in ((B, (), False), (again, (), True), (again, (OfflineLog(2, 9),), False)):
        leading = Leading(ME, 4, 0, 0.0)
        leading.fetch_received(fetch(replica, offset=3, synced=3), log, 1.0, in_sync=True)
        leading.leaves(both, alone._replace(offline=offline))
        there = {2: Registration(2, replica.epoch, "two")}
        assert (replica in leading.joining(TOPIC, 0, there, 3)) == joins
        leading.fetch_received(fetch(replica, offset=3, synced=3), log, 2.0, in_sync=True)
        assert replica in leading.joining(TOPIC, 0, there, 3)


def test_who_has_a_closed_port_is_gone_until_its_next_fetch() -> None:
    leading, log, state = Leading(ME, 4, 0, 0.0), log_of(4, 4, 4), PartitionState(1, 4, (ME, B))
    there = {1: Registration(1, 5, "one"), 2: Registration(2, 6, "two")}
    leading.fetch_received(fetch(offset=3, synced=3), log, 1.0, in_sync=True)
    leading.closed[B] = 2.0
    for at_ms in (2.0, 1.0 + UNDER_WAY_MS):  # what was under way when it died says nothing
        leading.fetch_received(fetch(offset=3, synced=3), log, at_ms, in_sync=True)
        assert (leading.gone_members(state, there), leading.healthy(state, there, at_ms, 1000.0)) == ((B,), 1)
        assert leading.joining(TOPIC, 0, there, 3) == (ME,)
    leading.fetch_received(fetch(offset=3, synced=3), log, 2.0 + UNDER_WAY_MS, in_sync=True)
    assert (leading.gone_members(state, there), leading.healthy(state, there, 600.0, 1000.0)) == ((), 2)
    assert leading.joining(TOPIC, 0, there, 3) == (ME, B)


def test_who_keeps_out_counts_for_what_it_has_and_is_not_to_be_in_sync() -> None:
    leading, log = Leading(ME, 4, 0, 0.0), log_of(4, 4, 4)
    there = {2: Registration(B.broker, B.epoch, B.directory)}
    state = PartitionState(1, 4, (ME, B))
    leading.fetch_received(fetch(offset=3, synced=3), log, 1.0, in_sync=True)
    assert leading.joining(TOPIC, 0, there, 3) == (ME, B)
    leading.fetch_received(fetch(offset=3, synced=3)._replace(keeps_out=True), log, 2.0, in_sync=True)
    assert leading.ends(3) == {ME: 3, B: 3}
    assert (leading.joining(TOPIC, 0, there, 3), leading.slow(state, 2.0, 1000.0)) == ((ME,), (B,))
    assert leading.healthy(state, there, 2.0, 1000.0) == 1
    leading.fetch_received(fetch(offset=3, synced=3), log, 3.0, in_sync=True)
    assert (leading.joining(TOPIC, 0, there, 3), leading.slow(state, 3.0, 1000.0)) == ((ME, B), ())
