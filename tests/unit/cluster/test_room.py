"""A full disk in a cluster: who leads then, who gets the lead back, and when data that counts may be evicted."""

from __future__ import annotations

import pytest

from edge_broker.cluster.effects import BeginEpoch, Send
from edge_broker.cluster.inter_broker_messages import ReplicaFetch
from edge_broker.cluster.partition.leader_state import Follower
from edge_broker.cluster.partition.partition import Partition, Role
from edge_broker.cluster.partition.room import KNOWN_MS, ROOM_KEPT_MS, room_offset
from edge_broker.cluster.state.cluster_state import NO_LEADER, InSyncReplica, PartitionState, Registration, Topic
from edge_broker.errors import ErrorCode
from tests.simulation.cluster_disk import SimLog
from tests.support.partition_replica import ME, PARTITION, TOPIC, B, C, MembersAround, records_written, replica_of

TWO = Topic("id", ((1, 2, 3),), {"min.insync.replicas": "2"})


def leading(*in_sync: InSyncReplica) -> tuple[Partition, SimLog, MembersAround]:
    """A leader in epoch 5 that needs two of three."""
    made, log, around = replica_of(4, 4)
    made.configure(TWO)
    made.take_in(PartitionState(1, 5, in_sync), 1)
    made.epoch_begun(5)
    assert made.role is Role.LEADING
    return made, log, around


def fetches(made: Partition, replica: InSyncReplica, *, full: bool = False, end: int = 2) -> None:
    made.fetch_from(ReplicaFetch(PARTITION, replica, 5, end, 4, end, keeps_out=full, is_full=full))


def test_a_leader_whose_disk_is_full_hands_over_to_a_replica_with_room_and_leaves_the_in_sync_set() -> None:
    made, log, around = leading(ME, B, C)
    fetches(made, B)
    fetches(made, C)
    log.full = True
    made.tick()
    (state,) = records_written(around)
    assert (state.leader, state.leader_epoch, state.in_sync) == (2, 6, (B, C))


def test_it_stays_named_where_the_in_sync_set_would_become_too_small() -> None:
    made, log, around = leading(ME, B)
    fetches(made, B)
    log.full = True
    made.tick()
    (state,) = records_written(around)
    assert (state.leader, state.in_sync) == (2, (ME, B))


def test_it_hands_over_to_the_one_that_has_room_though_another_comes_first() -> None:
    made, log, around = leading(ME, B, C)
    made.configure(TWO._replace(config={"min.insync.replicas": "3"}))
    fetches(made, C)
    fetches(made, B, full=True)
    log.full = True
    made.tick()
    assert [state.leader for state in records_written(around)] == [3]


def test_it_leads_on_where_nobody_has_room_or_was_heard_of() -> None:
    made, log, around = leading(ME, B, C)
    log.full = True
    made.tick()
    assert (made.role, records_written(around)) == (Role.LEADING, []), "nobody has fetched yet"
    made, log, around = leading(ME, B)
    fetches(made, B, full=True)
    log.full = True
    made.tick()
    assert (made.role, records_written(around)) == (Role.LEADING, [])


@pytest.mark.parametrize(("full", "spares"), [((), True), ((B,), False), ((B, C), False)])
def test_data_that_counts_is_spared_while_enough_others_have_room(
    full: tuple[InSyncReplica, ...], spares: bool
) -> None:
    made, _, around = leading(ME, B, C)
    for _ in range(2):
        for each in (B, C):
            fetches(made, each, full=each in full)
        around.now_ms += KNOWN_MS
    assert made.spares_unpassed is spares


def test_nothing_is_evicted_by_one_late_fetch_that_reports_a_full_disk() -> None:
    made, _, around = leading(ME, B, C)
    full_beside(made, B, C)
    assert made.evicts_below is not None
    for each in (B, C):
        made.fetch_from(ReplicaFetch(PARTITION, each, 5, 40, 5, 40))
    around.now_ms += KNOWN_MS
    for each in (B, C):
        made.fetch_from(ReplicaFetch(PARTITION, each, 5, 40, 5, 40, keeps_out=True, is_full=True))
    assert (made.evicts_below, made.spares_unpassed) == (None, True), "they have had room since, as far as is known"
    around.now_ms += KNOWN_MS
    for each in (B, C):
        made.fetch_from(ReplicaFetch(PARTITION, each, 5, 40, 5, 40, keeps_out=True, is_full=True))
    assert made.evicts_below is not None
    assert not made.spares_unpassed


def test_a_replica_with_room_that_catches_up_counts_and_one_that_is_silent_or_gone_does_not() -> None:
    made, _, around = leading(ME, B)
    fetches(made, B)
    fetches(made, C, end=0)
    assert made.spares_unpassed
    around.now_ms += around.settings.lag_ms_max + 1
    fetches(made, B)
    assert not made.spares_unpassed, "board 3 says nothing any more"
    fetches(made, C, end=0)
    assert made.spares_unpassed
    del around.registrations[3]
    assert not made.spares_unpassed


def test_a_follower_spares_nothing() -> None:
    made, _, _ = replica_of(4, 4)
    made.take_in(PartitionState(2, 5, (ME, B, C)), 1)
    assert not made.spares_unpassed


def test_nobody_gets_the_lead_back_on_request_before_it_has_had_room_for_a_while() -> None:
    made, _, around = leading(ME, B, C)
    fetches(made, C)
    fetches(made, B, full=True)
    assert not made.hand_over_on_request(2)
    fetches(made, B)
    around.now_ms += ROOM_KEPT_MS - 1
    assert not made.hand_over_on_request(2)
    around.now_ms += 1
    fetches(made, B)
    assert made.hand_over_on_request(2)
    around.now_ms += KNOWN_MS
    assert made.role is Role.LEADING
    fetches(made, B)
    assert made.role is Role.HANDING_OVER, "it waits for the write of another in-sync set"


def requested(made: Partition, around: MembersAround) -> None:
    """A request for broker 2 is kept; the next fetch of it decides."""
    assert made.hand_over_on_request(2)
    assert (made.role, records_written(around)) == (Role.LEADING, [])
    around.now_ms += KNOWN_MS


def test_a_follower_reports_that_its_disk_was_full_to_whoever_leads_until_it_has_had_room_for_a_while() -> None:
    made, log, around = replica_of(4, 4)
    made.take_in(PartitionState(2, 5, (ME, B, C)), 1)
    log.full = True
    made.tick()
    log.full = False
    made.take_in(PartitionState(3, 6, (ME, B, C)), 2)
    assert last_fetch(made, around).was_full, "board 3 has heard of nothing in epoch 6"
    around.now_ms += ROOM_KEPT_MS - 1
    assert last_fetch(made, around).was_full
    around.now_ms += 1
    assert not last_fetch(made, around).was_full


def test_a_follower_whose_disk_was_full_before_the_start_reports_so_for_a_minute() -> None:
    around = MembersAround()
    around.identity = around.identity._replace(full_ms=around.now_ms)
    around.now_ms += 10.0
    made = Partition(PARTITION, TOPIC, SimLog(), around, around.ask)
    made.take_in(PartitionState(2, 5, (ME, B, C)), 1)
    assert last_fetch(made, around).was_full
    around.now_ms += ROOM_KEPT_MS - 11
    assert last_fetch(made, around).was_full
    around.now_ms += 1
    assert not last_fetch(made, around).was_full


def test_a_leader_that_hands_over_as_its_disk_is_full_reports_so_to_the_next_one() -> None:
    made, log, around = leading(ME, B, C)
    fetches(made, B)
    log.full = True
    made.tick()
    log.full = False
    made.take_in(PartitionState(2, 6, (B, C)), 2)
    fetch = last_fetch(made, around)
    assert (fetch.leader_epoch, fetch.is_full, fetch.was_full) == (6, False, True)


def last_fetch(made: Partition, around: MembersAround) -> ReplicaFetch:
    """Return the newest fetch that a follower has sent."""
    assert made.following is not None
    made.fetch_again(made.following.leader)
    return around.fetches()[-1]


def test_a_leader_gives_the_lead_on_request_to_nobody_who_reports_that_its_disk_was_full() -> None:
    made, _, around = leading(ME, B, C)
    made.fetch_from(ReplicaFetch(PARTITION, B, 5, 2, 4, 2, was_full=True))
    assert not made.hand_over_on_request(2), "this leader never saw it full"
    fetches(made, B)
    requested(made, around)
    fetches(made, B)
    assert [state.leader for state in records_written(around)] == [2]


@pytest.mark.parametrize("heard", [{"was_full": True}, {"keeps_out": True, "is_full": True}])
def test_a_request_ends_where_the_first_fetch_in_this_epoch_reports_a_full_disk(heard: dict[str, bool]) -> None:
    made, _, around = leading(ME, B)
    requested(made, around)
    made.fetch_from(ReplicaFetch(PARTITION, B, 5, 2, 4, 2, **heard))
    assert (made.role, records_written(around)) == (Role.LEADING, []), "it had not fetched in this epoch before"
    around.now_ms += ROOM_KEPT_MS
    fetches(made, B)
    assert (made.role, records_written(around)) == (Role.LEADING, [])


@pytest.mark.parametrize("heard", [{"was_full": True}, {"keeps_out": True, "is_full": True}])
def test_a_transfer_on_request_ends_where_a_later_fetch_reports_a_full_disk(heard: dict[str, bool]) -> None:
    made, log, around = leading(ME, B)
    requested(made, around)
    log.lead(5, [7, 8])
    fetches(made, B)
    assert made.role is Role.HANDING_OVER, "it lacks two records"
    made.fetch_from(ReplicaFetch(PARTITION, B, 5, 4, 5, 4, **heard))
    assert (made.role, records_written(around)) == (Role.LEADING, [])


def test_a_waiting_fetch_that_is_evaluated_again_decides_nothing_and_hides_no_report() -> None:
    made, _, around = leading(ME, B)
    waiting = ReplicaFetch(PARTITION, B, 5, 2, 4, 2)
    made.fetch_from(waiting)
    requested(made, around)
    assert made.fetch_from(waiting, is_new=False).error is ErrorCode.NONE
    assert (made.role, records_written(around)) == (Role.LEADING, [])
    made.fetch_from(ReplicaFetch(PARTITION, B, 5, 2, 4, 2, was_full=True))
    made.fetch_from(waiting, is_new=False)
    assert not made.hand_over_on_request(2)


def test_a_request_for_no_other_member_of_the_in_sync_set_is_refused() -> None:
    made, _, around = leading(ME, B)
    assert not made.hand_over_on_request(1), "it leads"
    assert not made.hand_over_on_request(3), "it is not in sync"
    made.take_in(PartitionState(2, 6, (ME, B)), 2)
    assert not made.hand_over_on_request(2), "this broker does not lead any more"
    assert records_written(around) == []


def test_a_request_ends_with_the_leader_epoch() -> None:
    made, _, around = leading(ME, B)
    requested(made, around)
    made.take_in(PartitionState(1, 6, (ME, B)), 2)
    made.epoch_begun(6)
    made.fetch_from(ReplicaFetch(PARTITION, B, 6, 2, 4, 2))
    assert (made.role, records_written(around)) == (Role.LEADING, [])


def test_a_full_leader_hands_over_to_nobody_whose_disk_becomes_full_meanwhile() -> None:
    made, log, around = leading(ME, B)
    fetches(made, B)
    log.lead(5, [7, 8])
    log.full = True
    made.tick()
    assert made.role is Role.HANDING_OVER
    made.fetch_from(ReplicaFetch(PARTITION, B, 5, 4, 5, 4, keeps_out=True, is_full=True))
    assert (made.role, records_written(around)) == (Role.LEADING, [])


def test_a_restart_does_not_hide_that_a_disk_was_full_and_another_disk_has_never_been() -> None:
    made, _, around = leading(ME, B, C)
    fetches(made, B, full=True)
    for version, directory, may in ((2, B.directory, False), (3, "another disk", True)):
        again = InSyncReplica(2, directory, B.epoch + version)
        around.registrations[2] = Registration(2, again.epoch, directory)
        made.take_in(PartitionState(1, 5, (ME, again, C)), version)
        fetches(made, again)
        assert made.hand_over_on_request(2) is may  # no fetch decides


def test_a_full_replica_claims_after_the_others() -> None:
    made, log, around = replica_of(4, 4)
    log.full = True
    made.take_in(PartitionState(NO_LEADER, 4, (ME, B, C)), 1)
    made.tick()
    around.now_ms += 2 * around.settings.claim_wait_ms
    made.tick()
    assert records_written(around) == []
    around.now_ms += around.settings.claim_wait_ms
    made.tick()
    assert [state.leader for state in records_written(around)] == [1], "nobody else has claimed"


def test_a_full_replica_that_is_the_only_one_claims_at_once() -> None:
    made, log, around = replica_of(4, 4)
    log.full = True
    made.take_in(PartitionState(NO_LEADER, 4, (ME,)), 1)
    assert [state.leader for state in records_written(around)] == [1]
    assert BeginEpoch not in map(type, around.took())


def full_beside(made: Partition, *full: InSyncReplica, end: int = 40) -> None:
    """So many records are led and shown; these followers have them on full disks."""
    log = made.log
    assert isinstance(log, SimLog)
    log.lead(5, range(100, 100 + end - log.log_end_offset))
    log.end_sync(log.begin_sync())
    for each in (B, C):
        made.fetch_from(ReplicaFetch(PARTITION, each, 5, end, 5, end))
    made.advance_high_watermark()
    around = made._member
    assert isinstance(around, MembersAround)
    for _ in range(2):
        for each in full:
            made.fetch_from(ReplicaFetch(PARTITION, each, 5, end, 5, end, keeps_out=True, is_full=True))
        around.now_ms += KNOWN_MS


def test_a_leader_with_room_evicts_in_steps_for_followers_without_whom_too_few_have_room() -> None:
    made, log, _ = leading(ME, B, C)
    full_beside(made, B)
    assert made.evicts_below is None, "board 3 has room, and two are enough"
    full_beside(made, B, C)
    assert made.evicts_below == 40 // 16
    log.remove_front(2)
    assert made.evicts_below == 2 + 38 // 16
    full_beside(made, C)
    assert made.evicts_below is None


@pytest.mark.parametrize(
    ("ends", "with_room", "start", "mark", "offset"),
    [
        ((160,), 1, 0, 160, 10),
        ((160, 320), 1, 0, 320, 10),  # the one that holds least
        ((160,), 1, 0, 4, 4),  # no more is shown
        ((160,), 1, 100, 100, None),
        ((5,), 1, 0, 5, 1),
        ((160,), 1, 160, 160, None),  # its disk is full of other things
        ((160,), 2, 0, 160, None),
        ((), 1, 0, 160, None),
    ],
)
def test_a_step_is_a_part_of_what_full_followers_hold(
    ends: tuple[int, ...], with_room: int, start: int, mark: int, offset: int | None
) -> None:
    full = []
    for end in ends:
        follower = Follower(B, 0.0)
        follower.end = end
        full.append(follower)
    assert room_offset(full, with_room, 2, start, mark) == offset


def test_a_leader_evicts_for_nobody_whose_log_is_damaged_who_is_silent_gone_or_not_enough() -> None:
    made, _, around = leading(ME, B, C)
    full_beside(made, B, C)
    assert made.evicts_below == 2
    for each in (B, C):
        made.fetch_from(ReplicaFetch(PARTITION, each, 5, 40, 5, 40, keeps_out=True))
    assert made.evicts_below is None, "they are damaged"
    full_beside(made, B, C)
    around.now_ms += around.settings.lag_ms_max + 1
    assert made.evicts_below is None, "they say nothing any more"
    made.configure(TWO._replace(config={"min.insync.replicas": "3"}))
    full_beside(made, B)
    del around.registrations[3]
    assert made.evicts_below is None, "with room on board 2 there are too few"


def test_a_leader_on_a_full_disk_evicts_for_itself_alone() -> None:
    made, log, _ = leading(ME, B, C)
    full_beside(made, B, C)
    log.full = True
    assert made.evicts_below is None


def test_a_follower_says_whether_its_disk_is_full_or_its_log_damaged() -> None:
    made, log, around = replica_of(4, 4)
    made.take_in(PartitionState(2, 5, (ME, B, C)), 1)
    log.full = True
    around.now_ms += 10_000
    made.tick()
    sent = [each.message for each in around.took() if isinstance(each, Send)]
    fetch = next(each for each in reversed(sent) if isinstance(each, ReplicaFetch))
    assert (fetch.keeps_out, fetch.is_full) == (True, True)
