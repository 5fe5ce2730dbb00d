"""Rules of JoinGroup, SyncGroup, Heartbeat and LeaveGroup, one test each."""

import pytest

from edge_broker.coordinator.group import TRANSITIONS, GroupState
from edge_broker.coordinator.group_requests import ClockLead, GroupSettings, JoinedMember, LeaveResult, SyncResult
from edge_broker.coordinator.offset_records import read_group_value, read_offset_value
from edge_broker.errors import ErrorCode
from tests.support.groups import RANGE, STICKY, Site


def state(site: Site) -> GroupState:
    return site.coordinator.groups["group"].state


def generation(site: Site) -> int:
    return site.coordinator.groups["group"].generation_id


def test_every_state_but_dead_can_die_and_nothing_follows_dead() -> None:
    assert TRANSITIONS.keys() == set(GroupState)
    assert [s for s in GroupState if GroupState.DEAD not in TRANSITIONS[s]] == [GroupState.DEAD]
    assert not TRANSITIONS[GroupState.DEAD]


# JoinGroup


def test_a_new_dynamic_member_is_first_sent_away_with_its_id() -> None:
    site = Site()
    asked = site.joined(site.join(version=4), ErrorCode.MEMBER_ID_REQUIRED)
    assert asked.member_id == "client-0001"
    assert state(site) is GroupState.EMPTY
    joined = site.joined(site.join(asked.member_id, version=4))
    assert (joined.member_id, joined.generation_id, joined.leader_id) == ("client-0001", 1, "client-0001")
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")
    assert joined.members == (JoinedMember("client-0001", None, b"range-metadata"),)


def test_before_version_4_a_member_joins_in_one_step() -> None:
    site = Site()
    assert site.joined(site.join(version=3)).generation_id == 1
    assert state(site) is GroupState.COMPLETING_REBALANCE


def test_only_the_leader_gets_the_list_of_members() -> None:
    site = Site()
    leader = site.join_twice()
    follower = site.join_twice()
    leader = site.join(site.joined(leader).member_id)
    assert [m.member_id for m in site.joined(leader).members] == [
        site.joined(token).member_id for token in (leader, follower)
    ]
    assert site.joined(follower).members == ()
    assert site.joined(follower).leader_id == site.joined(leader).member_id
    assert site.joined(follower).generation_id == site.joined(leader).generation_id == 2


@pytest.mark.parametrize("session_timeout_ms", [5_999, 1_800_001, -1])
def test_a_session_timeout_outside_the_bounds_is_refused(session_timeout_ms: int) -> None:
    site = Site()
    assert site.error(site.join(session_timeout_ms=session_timeout_ms)) is ErrorCode.INVALID_SESSION_TIMEOUT
    assert not site.coordinator.groups


@pytest.mark.parametrize("session_timeout_ms", [6_000, 1_800_000])
def test_a_session_timeout_at_a_bound_is_taken(session_timeout_ms: int) -> None:
    site = Site()
    assert site.error(site.join(session_timeout_ms=session_timeout_ms, version=3)) is ErrorCode.NONE


def test_the_session_bounds_are_settings() -> None:
    site = Site(GroupSettings(min_session_timeout_ms=100, max_session_timeout_ms=200))
    assert site.error(site.join(session_timeout_ms=99)) is ErrorCode.INVALID_SESSION_TIMEOUT
    assert site.error(site.join(session_timeout_ms=100, version=3)) is ErrorCode.NONE


@pytest.mark.parametrize("group_id", ["", "g" * 32768, "ü" * 20000])
def test_a_group_id_that_cannot_be_stored_is_refused(group_id: str) -> None:
    site = Site()
    assert site.error(site.join(group_id=group_id)) is ErrorCode.INVALID_GROUP_ID


def test_a_name_that_cannot_be_stored_is_refused() -> None:
    site = Site()
    assert site.error(site.join(instance_id="i" * 32768)) is ErrorCode.INVALID_REQUEST
    assert site.error(site.join(client_id="c" * 32767)) is ErrorCode.INVALID_REQUEST


def test_an_id_in_a_group_that_does_not_exist_is_unknown() -> None:
    site = Site()
    assert site.error(site.join("client-0001")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert not site.coordinator.groups


def test_an_id_that_nobody_gave_out_is_unknown() -> None:
    site = Site()
    site.stable_group(1)
    assert site.error(site.join("stranger")) is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_was_not_used_in_time_is_forgotten_and_so_is_the_idle_group() -> None:
    site = Site()
    asked = site.joined(site.join(), ErrorCode.MEMBER_ID_REQUIRED)
    site.wait(9_999)
    assert site.coordinator.groups
    site.wait(1)
    assert not site.coordinator.groups
    assert site.error(site.join(asked.member_id)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert site.coordinator.next_deadline_ms() is None


def test_a_rebalance_waits_for_an_id_that_was_given_out() -> None:
    site = Site()
    (leader,) = site.stable_group(1)
    pending = site.joined(site.join(), ErrorCode.MEMBER_ID_REQUIRED)
    waiting = site.join(leader)
    assert waiting not in site.answers
    newcomer = site.join(pending.member_id)
    assert site.joined(waiting).generation_id == site.joined(newcomer).generation_id == 2


def test_the_protocol_with_most_votes_among_those_of_all_wins() -> None:
    site = Site(GroupSettings(initial_rebalance_delay_ms=100))
    tokens = [
        site.join(version=3, protocols=protocols)
        for protocols in [(RANGE, STICKY), (STICKY, RANGE), (STICKY, RANGE, RANGE._replace(name="own"))]
    ]
    site.wait(1_000)
    assert {site.joined(token).protocol_name for token in tokens} == {"sticky"}
    assert {m.metadata for m in site.joined(tokens[0]).members} == {b"sticky-metadata"}


@pytest.mark.parametrize(
    "odd",
    [{"protocols": (STICKY,)}, {"protocols": ()}, {"protocol_type": "connect"}, {"protocol_type": ""}],
)
def test_who_follows_no_protocol_of_the_group_is_refused(odd: dict[str, object]) -> None:
    site = Site()
    (leader,) = site.stable_group(1)
    assert site.error(site.join(**odd)) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL  # type: ignore[arg-type]
    assert site.error(site.join(leader, **odd)) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL  # type: ignore[arg-type]
    assert state(site) is GroupState.STABLE


@pytest.mark.parametrize("nothing", [{"protocols": ()}, {"protocol_type": ""}])
def test_a_first_member_must_name_a_type_and_a_protocol(nothing: dict[str, object]) -> None:
    site = Site()
    assert site.error(site.join(**nothing)) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL  # type: ignore[arg-type]
    assert not site.coordinator.groups


def test_an_empty_group_may_change_its_protocol_type() -> None:
    site = Site()
    (leader,) = site.stable_group(1)
    site.leave((leader, None))
    assert state(site) is GroupState.EMPTY
    assert site.joined(site.join_twice(protocol_type="connect")).protocol_type == "connect"


def test_a_stable_follower_that_joins_unchanged_learns_of_the_generation_without_a_rebalance() -> None:
    site = Site()
    leader, follower = site.stable_group()
    joined = site.joined(site.join(follower))
    assert (joined.generation_id, joined.leader_id, joined.members) == (2, leader, ())
    assert state(site) is GroupState.STABLE


def test_a_stable_follower_with_other_metadata_makes_a_rebalance() -> None:
    site = Site()
    leader, follower = site.stable_group()
    site.join(follower, protocols=(RANGE._replace(metadata=b"more topics"),))
    assert state(site) is GroupState.PREPARING_REBALANCE
    assert site.heartbeat(leader, 2) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_stable_leader_that_joins_makes_a_rebalance() -> None:
    site = Site()
    leader, _ = site.stable_group()
    site.join(leader)
    assert state(site) is GroupState.PREPARING_REBALANCE


def test_a_member_that_missed_its_answer_gets_it_again_before_the_sync() -> None:
    site = Site()
    first = site.joined(site.join_twice())
    again = site.joined(site.join(first.member_id))
    assert again == first


def test_a_join_that_is_repeated_while_it_waits_lets_the_first_go() -> None:
    site = Site()
    _, follower = site.stable_group()
    site.join_twice()
    first = site.join(follower)
    second = site.join(follower)
    assert site.error(first) is ErrorCode.REBALANCE_IN_PROGRESS
    assert second not in site.answers


def test_who_does_not_join_within_the_rebalance_timeout_is_dropped_and_another_leads() -> None:
    site = Site()
    leader, follower = site.stable_group()
    waiting = site.join(follower, protocols=(RANGE._replace(metadata=b"x"),))
    for _ in range(11):
        site.wait(5_000)
        assert site.heartbeat(leader, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert waiting not in site.answers
    site.wait(5_000)
    joined = site.joined(waiting)
    assert (joined.leader_id, joined.generation_id) == (follower, 3)
    assert [m.member_id for m in joined.members] == [follower]
    assert site.heartbeat(leader, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_longest_rebalance_timeout_counts_and_version_0_has_the_session_timeout() -> None:
    site = Site()
    first = site.joined(site.join(version=0, rebalance_timeout_ms=-1, session_timeout_ms=7_000)).member_id
    assert site.coordinator.groups["group"].rebalance_timeout_ms() == 7_000
    site.settle([first], 1)
    site.join(version=3, rebalance_timeout_ms=90_000)
    assert site.coordinator.groups["group"].rebalance_timeout_ms() == 90_000


def test_the_initial_delay_gathers_members_and_each_newcomer_extends_it_up_to_the_rebalance_timeout() -> None:
    site = Site(GroupSettings(initial_rebalance_delay_ms=3_000))
    tokens = [site.join_twice(rebalance_timeout_ms=8_000)]
    for _ in range(3):
        site.wait(2_500)
        assert not set(tokens) & site.answers.keys()
        tokens.append(site.join_twice(rebalance_timeout_ms=8_000))
    site.wait(499)  # 7999 ms after the first
    assert not set(tokens) & site.answers.keys()
    site.wait(1)
    assert {site.joined(token).generation_id for token in tokens} == {1}
    assert len(site.joined(tokens[0]).members) == 4


def test_without_newcomers_the_initial_delay_is_not_extended() -> None:
    site = Site(GroupSettings(initial_rebalance_delay_ms=3_000))
    token = site.join_twice()
    site.wait(2_999)
    assert token not in site.answers
    site.wait(1)
    assert site.joined(token).generation_id == 1


def test_a_new_member_that_is_not_answered_within_five_minutes_may_try_again() -> None:
    site = Site()
    (leader,) = site.stable_group(1)
    site.join(leader, rebalance_timeout_ms=900_000)
    site.settle([leader], 2)
    newcomer = site.join(version=3)
    for _ in range(59):
        site.wait(5_000)
        assert site.heartbeat(leader, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert newcomer not in site.answers
    site.wait(5_000)
    assert site.error(newcomer) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_takes_nobody_else() -> None:
    site = Site(GroupSettings(group_size_max=1))
    (leader,) = site.stable_group(1)
    assert site.error(site.join(version=3)) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert site.error(site.join()) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert state(site) is GroupState.STABLE
    assert site.heartbeat(leader, 1) is ErrorCode.NONE


def test_after_the_limit_was_lowered_the_last_to_join_again_are_turned_away() -> None:
    site = Site()
    leader, follower = site.stable_group()
    site.settings = GroupSettings(group_size_max=1)
    site.restart()
    assert state(site) is GroupState.PREPARING_REBALANCE
    first = site.join(follower)
    assert first not in site.answers
    assert site.error(site.join(leader)) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [m.member_id for m in site.joined(first).members] == [follower]


# Static members


def test_a_static_member_joins_in_one_step_and_its_id_begins_with_its_instance() -> None:
    site = Site()
    joined = site.joined(site.join(instance_id="pi-1"))
    assert joined.member_id == "pi-1-0001"
    assert joined.members[0].instance_id == "pi-1"


def test_a_static_follower_comes_back_without_a_rebalance_and_its_former_self_is_fenced() -> None:
    site = Site()
    ids = site.stable_static_group("pi-1", "pi-2")
    records = len(site.log)
    back = site.joined(site.join(instance_id="pi-2"))
    assert (back.generation_id, back.leader_id, back.members) == (2, ids["pi-1"], ())
    assert back.member_id != ids["pi-2"]
    assert state(site) is GroupState.STABLE
    assert len(site.log) == records + 1
    assert site.heartbeat(ids["pi-2"], 2, "pi-2") is ErrorCode.FENCED_INSTANCE_ID
    assert site.heartbeat(back.member_id, 2, "pi-2") is ErrorCode.NONE
    synced = site.answers[site.sync(back.member_id, 2, instance_id="pi-2")]
    assert synced == SyncResult(ErrorCode.NONE, "consumer", "range", ids["pi-2"].encode())


def test_a_static_leader_that_comes_back_is_told_to_skip_assigning_from_version_9() -> None:
    site = Site()
    site.stable_static_group("pi-1", "pi-2")
    back = site.joined(site.join(instance_id="pi-1", version=9))
    assert back.skip_assignment
    assert back.leader_id == back.member_id
    assert len(back.members) == 2


def test_before_version_9_a_static_leader_is_told_of_its_former_self_as_leader() -> None:
    site = Site()
    ids = site.stable_static_group("pi-1", "pi-2", version=8)
    back = site.joined(site.join(instance_id="pi-1", version=8))
    assert (back.skip_assignment, back.leader_id, back.members) == (False, ids["pi-1"], ())
    assert site.coordinator.groups["group"].leader_id == back.member_id


def test_a_static_member_learns_of_its_new_id_after_the_sync_only() -> None:
    site = Site()
    site.stable_static_group("pi-1")
    site.sync_at_once = False
    back = site.join(instance_id="pi-1")
    assert back not in site.answers
    site.sync_disk()
    assert site.joined(back).generation_id == 1


def test_a_static_member_that_comes_back_twice_before_the_sync_is_fenced_once() -> None:
    site = Site()
    site.stable_static_group("pi-1")
    site.sync_at_once = False
    first, second = site.join(instance_id="pi-1"), site.join(instance_id="pi-1")
    assert site.error(first) is ErrorCode.FENCED_INSTANCE_ID
    site.sync_disk()
    assert site.joined(second).generation_id == 1


def test_a_static_member_that_cannot_be_stored_is_told_so() -> None:
    site = Site()
    site.stable_static_group("pi-1")
    site.sync_at_once = False
    back = site.join(instance_id="pi-1")
    site.fail_disk()
    assert site.error(back) is ErrorCode.NOT_COORDINATOR


def test_a_static_member_whose_choice_changes_the_protocol_makes_a_rebalance() -> None:
    site = Site()
    token = site.join(instance_id="pi-1", protocols=(RANGE, STICKY))
    site.settle([site.joined(token).member_id], 1)
    back = site.joined(site.join(instance_id="pi-1", protocols=(STICKY, RANGE)))
    assert (back.generation_id, back.protocol_name) == (2, "sticky")


def test_a_static_member_that_comes_back_before_the_assignment_makes_everyone_join_again() -> None:
    site = Site()
    ids = site.stable_static_group("pi-1", "pi-2")
    site.join(ids["pi-1"], instance_id="pi-1")
    site.join(ids["pi-2"], instance_id="pi-2")
    assert state(site) is GroupState.COMPLETING_REBALANCE
    syncing = site.sync(ids["pi-2"], 3, instance_id="pi-2")
    site.join(instance_id="pi-2")
    assert site.error(syncing) is ErrorCode.FENCED_INSTANCE_ID
    assert state(site) is GroupState.PREPARING_REBALANCE


def test_a_known_id_with_another_instance_is_fenced_or_unknown() -> None:
    site = Site()
    ids = site.stable_static_group("pi-1", "pi-2")
    assert site.error(site.join(ids["pi-1"], instance_id="pi-2")) is ErrorCode.FENCED_INSTANCE_ID
    assert site.error(site.join(ids["pi-1"], instance_id="pi-3")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert site.error(site.sync(ids["pi-1"], 2, instance_id="pi-2")) is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_may_come_back_into_a_full_group() -> None:
    site = Site(GroupSettings(group_size_max=1))
    site.stable_static_group("pi-1")
    assert site.joined(site.join(instance_id="pi-1")).generation_id == 1
    assert site.error(site.join(instance_id="pi-2")) is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_rebalance_goes_on_without_a_static_member_but_keeps_it_for_its_session() -> None:
    site = Site()
    ids = site.stable_static_group("pi-1", "pi-2")
    waiting = site.join(ids["pi-1"], instance_id="pi-1", rebalance_timeout_ms=7_000)
    site.join(ids["pi-2"], instance_id="pi-2", rebalance_timeout_ms=7_000)
    site.settle(list(ids.values()), site.joined(waiting).generation_id)
    waiting = site.join(ids["pi-1"], instance_id="pi-1", rebalance_timeout_ms=7_000)
    site.wait(7_000)
    assert {m.instance_id for m in site.joined(waiting).members} == {"pi-1", "pi-2"}


# SyncGroup


def test_followers_wait_for_the_leader_and_everyone_gets_his_own_after_the_sync() -> None:
    site = Site(sync_at_once=False)
    leader = site.join_twice()
    follower = site.join_twice()
    leader = site.join(site.joined(leader).member_id)
    ids = [site.joined(token).member_id for token in (leader, follower)]
    tokens = [site.sync(ids[1], 2)]
    assert not site.log
    tokens.append(site.sync(ids[0], 2, {ids[0]: b"A", ids[1]: b"B", "stranger": b"C"}))
    assert len(site.log) == 1
    assert not set(tokens) & site.answers.keys()
    assert state(site) is GroupState.COMPLETING_REBALANCE
    site.sync_disk()
    assert state(site) is GroupState.STABLE
    assert [site.answers[token] for token in tokens] == [
        SyncResult(ErrorCode.NONE, "consumer", "range", assignment) for assignment in (b"B", b"A")
    ]


def test_whom_the_leader_leaves_out_gets_an_empty_assignment() -> None:
    site = Site()
    member_id = site.joined(site.join_twice()).member_id
    assert site.answers[site.sync(member_id, 1)] == SyncResult(ErrorCode.NONE, "consumer", "range", b"")


def test_a_stable_member_may_ask_again() -> None:
    site = Site()
    _, follower = site.stable_group()
    assert site.answers[site.sync(follower, 2)] == SyncResult(ErrorCode.NONE, "consumer", "range", follower.encode())


def test_a_leader_that_repeats_itself_is_stored_once() -> None:
    site = Site(sync_at_once=False)
    member_id = site.joined(site.join_twice()).member_id
    first, second = site.sync(member_id, 1, {member_id: b"A"}), site.sync(member_id, 1, {member_id: b"B"})
    assert site.error(first) is ErrorCode.REBALANCE_IN_PROGRESS
    site.sync_disk()
    assert len(site.log) == 1
    assert site.answers[second] == SyncResult(ErrorCode.NONE, "consumer", "range", b"A")


@pytest.mark.parametrize(
    ("member", "generation_id", "names", "error"),
    [
        ("stranger", 2, {}, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 1, {}, ErrorCode.ILLEGAL_GENERATION),
        (None, 3, {}, ErrorCode.ILLEGAL_GENERATION),
        (None, 2, {"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (None, 2, {"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (None, 2, {"protocol_type": "consumer", "protocol_name": "range"}, ErrorCode.NONE),
    ],
)
def test_a_sync_must_fit_the_generation(
    member: str | None, generation_id: int, names: dict[str, str], error: ErrorCode
) -> None:
    site = Site()
    _, follower = site.stable_group()
    assert site.error(site.sync(member or follower, generation_id, **names)) is error  # type: ignore[arg-type]


def test_a_sync_in_no_group_is_unknown_and_during_a_rebalance_sent_to_join() -> None:
    site = Site()
    assert site.error(site.sync("client-0001", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    leader, follower = site.stable_group()
    site.join(leader)
    assert site.error(site.sync(follower, 2)) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_newcomer_sends_those_who_wait_for_an_assignment_to_join_again() -> None:
    site = Site()
    leader, follower = site.stable_group()
    site.join(leader)
    site.join(follower)
    syncing = site.sync(follower, 3)
    site.join_twice()
    assert site.error(syncing) is ErrorCode.REBALANCE_IN_PROGRESS


def test_an_assignment_that_is_overtaken_by_a_rebalance_counts_for_nothing() -> None:
    site = Site()
    (leader,) = site.stable_group(1)
    site.sync_at_once = False
    site.join(leader)
    syncing = site.sync(leader, 2, {leader: b"old"})
    site.join_twice()
    assert site.error(syncing) is ErrorCode.REBALANCE_IN_PROGRESS
    site.sync_disk()
    assert state(site) is GroupState.PREPARING_REBALANCE


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_assignment_that_cannot_be_stored_is_taken_from_everyone(failure: ErrorCode, told: ErrorCode) -> None:
    site = Site(sync_at_once=False)
    member_id = site.joined(site.join_twice()).member_id
    syncing = site.sync(member_id, 1, {member_id: b"A"})
    site.fail_disk(failure)
    assert site.error(syncing) is told
    assert state(site) is GroupState.PREPARING_REBALANCE


def test_who_sends_no_sync_within_the_rebalance_timeout_is_dropped() -> None:
    site = Site()
    leader, follower = site.stable_group()
    site.join(leader)
    site.join(follower)
    syncing = site.sync(follower, 3)
    for _ in range(12):
        assert syncing not in site.answers
        site.heartbeat(leader, 3)
        site.wait(5_000)
    assert site.error(syncing) is ErrorCode.REBALANCE_IN_PROGRESS
    assert list(site.coordinator.groups["group"].members) == [follower]


# Heartbeat and sessions


def test_heartbeats_keep_a_member_and_silence_drops_it() -> None:
    site = Site()
    leader, follower = site.stable_group()
    for _ in range(5):
        site.wait(9_999)
        assert site.heartbeat(leader, 2) is not ErrorCode.UNKNOWN_MEMBER_ID
    assert list(site.coordinator.groups["group"].members) == [leader]
    assert site.heartbeat(follower, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert state(site) is GroupState.PREPARING_REBALANCE


def test_the_last_member_that_falls_silent_leaves_an_empty_group_that_is_stored() -> None:
    site = Site()
    site.stable_group(1)
    records = len(site.log)
    site.wait(10_000)
    assert state(site) is GroupState.EMPTY
    assert generation(site) == 2
    assert len(site.log) == records + 1
    assert site.coordinator.next_deadline_ms() is None


@pytest.mark.parametrize(
    ("group", "generation_id", "error"),
    [
        ("", 1, ErrorCode.INVALID_GROUP_ID),
        ("other", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("group", 0, ErrorCode.ILLEGAL_GENERATION),
        ("group", 1, ErrorCode.NONE),
    ],
)
def test_a_heartbeat_must_fit_the_generation(group: str, generation_id: int, error: ErrorCode) -> None:
    site = Site()
    (leader,) = site.stable_group(1)
    assert site.coordinator.heartbeat(group, generation_id, leader, None, site.now_ms) is error


def test_a_member_that_waits_needs_no_heartbeats() -> None:
    site = Site()
    leader, follower = site.stable_group()
    waiting = site.join(follower, protocols=(RANGE._replace(metadata=b"x"),))
    for _ in range(5):
        site.wait(9_999)
        site.heartbeat(leader, 2)
    assert waiting not in site.answers
    assert follower in site.coordinator.groups["group"].members


def test_a_member_whose_connection_went_away_while_it_waited_has_its_session_timeout() -> None:
    site = Site()
    leader, follower = site.stable_group()
    waiting = site.join(follower, protocols=(RANGE._replace(metadata=b"x"),))
    site.coordinator.forget("group", waiting, site.now_ms)
    site.wait(9_999)
    site.heartbeat(leader, 2)
    assert follower in site.coordinator.groups["group"].members
    site.wait(1)
    assert follower not in site.coordinator.groups["group"].members
    assert waiting not in site.answers


def test_a_member_whose_connection_went_away_may_join_again() -> None:
    site = Site()
    leader, follower = site.stable_group()
    waiting = site.join(follower, protocols=(RANGE._replace(metadata=b"x"),))
    site.coordinator.forget("group", waiting, site.now_ms)
    again = site.join(follower)
    site.join(leader)
    assert site.joined(again).generation_id == 3
    assert waiting not in site.answers


def test_forgetting_a_token_that_does_not_wait_changes_nothing() -> None:
    site = Site()
    site.stable_group()
    site.coordinator.forget("group", 4711, site.now_ms)
    assert state(site) is GroupState.STABLE


# LeaveGroup


def test_a_member_that_leaves_makes_a_rebalance() -> None:
    site = Site()
    leader, follower = site.stable_group()
    left = site.answers[site.leave((follower, None))]
    assert left == LeaveResult(ErrorCode.NONE, ((follower, None, ErrorCode.NONE),))  # type: ignore[arg-type]
    assert site.heartbeat(leader, 2) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_batch_leaves_one_by_one_and_each_has_its_own_error() -> None:
    site = Site()
    ids = site.stable_static_group("pi-1", "pi-2", "pi-3")
    result = site.answers[
        site.leave(
            ("", "pi-1"), (ids["pi-2"], "pi-2"), (ids["pi-1"], "pi-3"), ("stranger", None), ("", "pi-9"), ("", None)
        )
    ]
    assert isinstance(result, LeaveResult)
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert [member.error for member in result.members] == [
        ErrorCode.NONE, ErrorCode.NONE, ErrorCode.FENCED_INSTANCE_ID, unknown, unknown, unknown,
    ]  # fmt: skip
    assert list(site.coordinator.groups["group"].members) == [ids["pi-3"]]


def test_the_last_to_leave_is_answered_after_the_sync() -> None:
    site = Site()
    (leader,) = site.stable_group(1)
    site.sync_at_once = False
    leaving = site.leave((leader, None))
    assert leaving not in site.answers
    assert state(site) is GroupState.EMPTY
    site.sync_disk()
    assert site.error(leaving) is ErrorCode.NONE


def test_a_leave_that_cannot_be_stored_is_told_so() -> None:
    site = Site()
    (leader,) = site.stable_group(1)
    site.sync_at_once = False
    leaving = site.leave((leader, None))
    site.fail_disk()
    assert site.error(leaving) is ErrorCode.NOT_COORDINATOR


def test_leaving_ends_a_wait_of_the_same_member() -> None:
    site = Site()
    _, follower = site.stable_group()
    waiting = site.join(follower, protocols=(RANGE._replace(metadata=b"x"),))
    site.leave((follower, None))
    assert site.error(waiting) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_others_go_on_when_the_last_missing_member_leaves() -> None:
    site = Site()
    leader, follower = site.stable_group()
    waiting = site.join(leader)
    site.leave((follower, None))
    assert site.joined(waiting).generation_id == 3


def test_an_id_that_was_given_out_may_leave_without_a_rebalance() -> None:
    site = Site()
    (leader,) = site.stable_group(1)
    pending = site.joined(site.join(), ErrorCode.MEMBER_ID_REQUIRED).member_id
    assert site.error(site.leave((pending, None))) is ErrorCode.NONE
    assert site.heartbeat(leader, 1) is ErrorCode.NONE


def test_leaving_no_group_or_an_unknown_group() -> None:
    site = Site()
    result = site.answers[site.leave(("client-0001", None))]
    assert isinstance(result, LeaveResult)
    assert result.error is ErrorCode.NONE
    assert [member.error for member in result.members] == [ErrorCode.UNKNOWN_MEMBER_ID]


# The end


def test_when_the_broker_stops_everyone_who_waits_is_sent_elsewhere() -> None:
    site = Site()
    leader, follower = site.stable_group()
    waiting = site.join(leader)
    site.take(site.coordinator.stop(site.now_ms))
    assert site.error(waiting) is ErrorCode.NOT_COORDINATOR
    assert site.heartbeat(follower, 2) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert site.error(site.join(follower)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert site.error(site.leave((follower, None))) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert site.coordinator.next_deadline_ms() is None


def test_records_carry_the_time_of_day_while_deadlines_go_by_the_callers_clock() -> None:
    site = Site()
    site.coordinator.clock_lead = ClockLead(wall_ms=1_750_000_000_000)
    site.stable_group(1)
    site.commit(7, group_id="outside")
    values = [value for _, value in site.log if value is not None]
    assert read_group_value(values[0]).state_since_ms == 1_750_000_000_000 + site.now_ms
    assert read_offset_value(values[1]).commit_ms == 1_750_000_000_000 + site.now_ms
    assert site.coordinator.next_deadline_ms() == site.now_ms + 10_000


def test_an_assignment_that_is_synced_in_a_later_generation_counts_for_nothing() -> None:
    site = Site(sync_at_once=False)
    first = site.joined(site.join_twice()).member_id
    site.sync(first, 1, {first: b"old"})
    second = site.join_twice()
    site.join(first)
    assert site.joined(second).generation_id == 2
    site.sync_disk()
    assert state(site) is GroupState.COMPLETING_REBALANCE
    assert site.coordinator.groups["group"].members[first].assignment is None


def test_a_static_member_whose_connection_went_away_before_the_sync_no_longer_waits() -> None:
    site = Site()
    ids = site.stable_static_group("pi-1", "pi-2")
    site.sync_at_once = False
    back = site.join(instance_id="pi-2")
    site.coordinator.forget("group", back, site.now_ms)
    site.sync_disk()
    assert back not in site.answers
    waiting = site.join(ids["pi-1"], instance_id="pi-1")
    assert waiting not in site.answers  # pi-2 did not join this rebalance


def test_a_follower_without_an_assignment_has_an_empty_one() -> None:
    site = Site()
    member_id = site.joined(site.join_twice()).member_id
    site.sync(member_id, 1)
    assert site.coordinator.groups["group"].members[member_id].assignment == b""
