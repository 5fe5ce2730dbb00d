"""Requests for another leader: a fetch that is surely newer than the request decides; transfers end where they must."""

from __future__ import annotations

import pytest

from edge_broker.cluster.partition.lead_transfer import LeadRequests, LeadTransfer
from edge_broker.cluster.partition.leader_state import Follower
from edge_broker.cluster.partition.room import KNOWN_MS, ROOM_KEPT_MS
from edge_broker.cluster.state.cluster_state import OfflineLog, PartitionState
from tests.support.partition_replica import ME, B, C, MembersAround

STATE = PartitionState(1, 5, (ME, B, C))
WITHIN_MS = 5000.0


# requests


def test_the_first_fetch_that_is_surely_newer_than_the_request_grants_it_once() -> None:
    requests = LeadRequests()
    requests.add(2, 1000.0)
    assert not requests.decide(2, 1000.0, kept_room=True)
    assert not requests.decide(2, 1000.0 + KNOWN_MS - 1, kept_room=True)
    assert requests.decide(2, 1000.0 + KNOWN_MS, kept_room=True)
    assert not requests.decide(2, 1000.0 + 2 * KNOWN_MS, kept_room=True)


@pytest.mark.parametrize("after_ms", [0.0, KNOWN_MS - 1, KNOWN_MS, 100 * KNOWN_MS])
def test_a_fetch_that_reports_a_full_disk_ends_a_request_whenever_it_arrives(after_ms: float) -> None:
    requests = LeadRequests()
    requests.add(2, 0.0)
    assert not requests.decide(2, after_ms, kept_room=False)
    assert not requests.decide(2, after_ms + KNOWN_MS, kept_room=True)


def test_a_request_that_is_repeated_counts_from_its_first_time() -> None:
    requests = LeadRequests()
    for at_ms in (0.0, KNOWN_MS / 2, KNOWN_MS - 1):
        requests.add(2, at_ms)
    assert requests.decide(2, KNOWN_MS, kept_room=True)


def test_requests_for_several_replicas_are_decided_by_their_own_fetches() -> None:
    requests = LeadRequests()
    requests.add(2, 0.0)
    requests.add(3, KNOWN_MS)
    assert not requests.decide(4, KNOWN_MS, kept_room=True), "nobody requested that"
    assert not requests.decide(3, KNOWN_MS, kept_room=True)
    assert not requests.decide(2, KNOWN_MS, kept_room=False)
    assert requests.decide(3, 2 * KNOWN_MS, kept_room=True)


def test_no_request_of_an_earlier_leader_epoch_is_granted() -> None:
    requests = LeadRequests()
    requests.add(2, 0.0)
    requests.clear()
    assert not requests.decide(2, KNOWN_MS, kept_room=True)
    requests.add(2, KNOWN_MS)
    assert not requests.decide(2, KNOWN_MS, kept_room=True)
    assert requests.decide(2, 2 * KNOWN_MS, kept_room=True)


# the transfer


def follower(
    now_ms: float, *, keeps_out: bool = False, was_full: bool = False, kept_out_ms: float = float("-inf")
) -> dict[int, Follower]:
    """What a leader knows of broker 2."""
    made = Follower(B, now_ms)
    made.keeps_out, made.was_full, made.kept_out_ms = keeps_out, was_full, kept_out_ms
    return {2: made}


def test_a_request_for_a_replica_that_has_not_fetched_in_this_epoch_waits_for_its_fetch() -> None:
    around = MembersAround()
    transfer = LeadTransfer(around)
    assert transfer.request(2, {})
    around.now_ms += KNOWN_MS
    assert transfer.decide(2, follower(around.now_ms))


@pytest.mark.parametrize(
    "known",
    [
        follower(1000.0, was_full=True),
        follower(1000.0, keeps_out=True, kept_out_ms=1000.0),
        follower(1000.0, kept_out_ms=1001.0 - ROOM_KEPT_MS),
    ],
)
def test_a_request_for_a_replica_that_is_known_to_have_been_full_is_refused(known: dict[int, Follower]) -> None:
    around = MembersAround()
    transfer = LeadTransfer(around)
    assert not transfer.request(2, known)
    around.now_ms += ROOM_KEPT_MS
    assert not transfer.decide(2, follower(around.now_ms)), "nothing is kept of it"


def test_a_fetch_that_was_on_its_way_does_not_hide_the_report_behind_it() -> None:
    around = MembersAround()
    transfer = LeadTransfer(around)
    assert transfer.request(2, follower(0.0)), "its last fetch is older than its full disk"
    around.now_ms += KNOWN_MS / 2
    assert not transfer.decide(2, follower(around.now_ms))
    around.now_ms += KNOWN_MS / 2
    assert not transfer.decide(2, follower(around.now_ms, was_full=True))
    assert not transfer.decide(2, follower(around.now_ms))


def test_another_leader_epoch_ends_requests() -> None:
    around = MembersAround()
    transfer = LeadTransfer(around)
    assert transfer.request(2, {})
    transfer.begin_epoch()
    around.now_ms += KNOWN_MS
    assert not transfer.decide(2, follower(around.now_ms))


@pytest.mark.parametrize("on_request", [True, False])
def test_a_transfer_has_so_much_time(on_request: bool) -> None:
    around = MembersAround()
    transfer = LeadTransfer(around)
    transfer.begin(2, WITHIN_MS, on_request=on_request)
    assert transfer.to == 2
    around.now_ms += WITHIN_MS
    assert transfer.may_go_on(STATE, {})
    around.now_ms += 1
    assert not transfer.may_go_on(STATE, {})


def test_a_transfer_ends_where_the_new_leader_is_gone_or_its_log_offline() -> None:
    around = MembersAround()
    transfer = LeadTransfer(around)
    transfer.begin(2, WITHIN_MS, on_request=True)
    assert transfer.may_go_on(STATE, {})
    assert not transfer.may_go_on(STATE._replace(in_sync=(ME, C)), {})
    assert not transfer.may_go_on(STATE._replace(offline=(OfflineLog(2, B.epoch),)), {})
    del around.registrations[2]
    assert not transfer.may_go_on(STATE, {})


@pytest.mark.parametrize(
    ("keeps_out", "was_full", "on_request", "leaving", "goes_on"),
    [
        (False, False, True, False, True),
        (False, True, True, False, False),
        (False, True, False, False, True),  # a leader on a full disk needs a replica with room now
        (True, True, True, False, False),
        (True, True, False, False, False),
        (True, True, True, True, True),  # a broker that stops leads no more in any case
        (True, True, False, True, True),
    ],
)
def test_a_transfer_ends_where_the_new_leader_has_no_room(
    keeps_out: bool, was_full: bool, on_request: bool, leaving: bool, goes_on: bool
) -> None:
    around = MembersAround()
    around.leaving = leaving
    transfer = LeadTransfer(around)
    transfer.begin(2, WITHIN_MS, on_request=on_request)
    known = follower(around.now_ms, keeps_out=keeps_out, was_full=was_full)
    assert transfer.may_go_on(STATE, known) is goes_on
