"""What groups and committed offsets may take of memory, and who goes when it is too much."""

from __future__ import annotations

import pytest

from edge_broker.coordinator.deadlines import STALE_MAX, Deadlines
from edge_broker.coordinator.group_coordinator import GroupCoordinator
from edge_broker.coordinator.group_memory_limit import Room
from edge_broker.coordinator.group_requests import (
    Commit,
    CommitPartition,
    GroupSettings,
    Join,
    JoinResult,
    Protocol,
    Sync,
)
from edge_broker.errors import ErrorCode
from tests.support.groups import Site

SMALL = GroupSettings(group_bytes_max=20_000, groups_bytes_max=60_000)


def says(site: Site, group_id: str, size: int, *, member_id: str = "", peer: str = "here:1") -> JoinResult | None:
    """One JoinGroup with so much metadata; None while it waits."""
    token = site.token()
    join = Join(
        token=token,
        group_id=group_id,
        member_id=member_id,
        client_id="c",
        client_host="/h",
        peer=peer,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(Protocol("range", bytes(size)),),
        member_id_required=False,
    )
    site.take(site.coordinator.join(join, unique_id=f"id{token}", now_ms=site.now_ms))
    found = site.answers.get(token)
    assert found is None or isinstance(found, JoinResult)
    return found


def error(result: JoinResult | None) -> ErrorCode:
    assert result is not None
    return result.error


def test_a_group_that_says_too_much_is_refused_and_others_go_on() -> None:
    site = Site(SMALL)
    assert error(says(site, "large", 20_001)) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert not site.coordinator.groups, "nothing of it is kept"
    first = says(site, "g", 12_000)
    assert error(first) is ErrorCode.NONE
    assert error(says(site, "g", 12_000)) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert error(says(site, "other", 12_000)) is ErrorCode.NONE
    assert first is not None
    assert error(says(site, "g", 15_000, member_id=first.member_id)) is ErrorCode.NONE, "in place of what it said"


def test_an_assignment_that_is_too_large_is_refused() -> None:
    site = Site(SMALL)
    joined = says(site, "g", 100)
    assert joined is not None
    for size, expected in ((20_000, ErrorCode.COORDINATOR_NOT_AVAILABLE), (10_000, ErrorCode.NONE)):
        token = site.token()
        assignments = ((joined.member_id, bytes(size)),)
        sync = Sync(token=token, group_id="g", generation_id=1, member_id=joined.member_id, assignments=assignments)
        site.take(site.coordinator.sync(sync, site.now_ms))
        assert site.answers[token].error is expected  # type: ignore[union-attr]


def test_when_all_groups_are_full_members_without_a_connection_go_first() -> None:
    site = Site(SMALL)
    assert [error(says(site, f"g{number}", 15_000, peer=f"gone:{number}")) for number in range(3)] == [0, 0, 0]
    assert error(says(site, "new", 15_000)) is ErrorCode.GROUP_MAX_SIZE_REACHED, "all of them are there"
    site.now_ms += 2_000
    site.coordinator.room.is_connected = lambda peer: peer == "here:1"
    assert error(says(site, "new", 15_000)) is ErrorCode.NONE
    assert len(site.coordinator.groups["new"].members) == 1
    assert sum(len(group.members) for group in site.coordinator.groups.values()) < 4
    assert site.coordinator.memory.held <= SMALL.groups_bytes_max


def test_a_member_that_is_heard_of_is_connected_where_it_speaks() -> None:
    site = Site(SMALL)
    joined = says(site, "g", 100, peer="gone:1")
    assert joined is not None
    site.coordinator.heartbeat("g", 1, joined.member_id, None, site.now_ms, peer="here:1")
    assert site.coordinator.groups["g"].members[joined.member_id].peer == "here:1"


def commit(site: Site, group_id: str, partitions: range, metadata: str = "") -> set[ErrorCode]:
    token = site.token()
    wanted = tuple(CommitPartition("t", partition, 7, -1, metadata) for partition in partitions)
    site.take(site.coordinator.commit(Commit(token=token, group_id=group_id, partitions=wanted), site.now_ms))
    return {one.error for one in site.answers[token].partitions}  # type: ignore[union-attr]


def test_offsets_that_are_there_may_move_when_memory_is_full_and_no_others_come() -> None:
    site = Site(SMALL)
    assert commit(site, "g", range(200)) == {ErrorCode.NONE}
    site.now_ms += 2_000
    assert commit(site, "g", range(200)) == {ErrorCode.NONE}
    assert commit(site, "g", range(200, 201)) == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    assert commit(site, "another", range(1)) == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    assert commit(site, "g", range(1), "more") == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    site.take(site.coordinator.forget_topics(["t"], site.now_ms))
    assert site.coordinator.offsets.held == 0
    assert commit(site, "another", range(1)) == {ErrorCode.NONE}


def test_what_is_stored_is_loaded_whatever_its_size() -> None:
    site = Site()
    joined = says(site, "g", 30_000)
    assert joined is not None
    assignments = ((joined.member_id, bytes(50_000)),)
    sync = Sync(token=site.token(), group_id="g", generation_id=1, member_id=joined.member_id, assignments=assignments)
    site.take(site.coordinator.sync(sync, site.now_ms))
    loaded = GroupCoordinator.load(SMALL, site.log, site.now_ms)
    assert len(loaded.groups["g"].members) == 1
    assert loaded.memory.held > 80_000


@pytest.mark.parametrize("moved", ["cancelled", "earlier"])
def test_deadlines_that_are_gone_leave_nothing_for_long(moved: str) -> None:
    deadlines: Deadlines[int] = Deadlines()
    for number in range(20 * STALE_MAX):
        key = number if moved == "cancelled" else number % 10
        deadlines.set(key, 10_000_000 - number)
        if moved == "cancelled":
            deadlines.cancel(key)
    assert len(deadlines._heap) <= STALE_MAX + 30
    deadlines.set(-1, 5)
    assert deadlines.next_ms() == 5


def test_coordinators_of_several_partitions_share_one_room() -> None:
    site, other = Site(SMALL), Site(SMALL)
    room = Room(SMALL.groups_bytes_max)
    site.coordinator.move(room)
    other.coordinator.move(room)
    assert [error(says(one, f"g{number}", 15_000, peer="gone:1")) for number, one in enumerate([site, other])] == [0, 0]
    assert error(says(other, "g2", 15_000)) is ErrorCode.NONE
    assert error(says(other, "g3", 15_000)) is ErrorCode.GROUP_MAX_SIZE_REACHED, "all of them are there"
    other.now_ms += 2_000
    room.is_connected = lambda peer: peer == "here:1"
    join_ = Join(
        token=other.token(),
        group_id="g3",
        member_id="",
        client_id="c",
        client_host="/h",
        peer="here:1",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(Protocol("range", bytes(15_000)),),
        member_id_required=False,
    )
    effects = other.coordinator.join(join_, unique_id="id", now_ms=other.now_ms)
    assert [answer.result.error for answer in effects.answers] == [ErrorCode.NONE]  # type: ignore[union-attr]
    assert not site.coordinator.groups["g0"].members, "the first that is gone, whoever has it"
    assert [(one.partition, bool(one.append)) for one in effects.elsewhere] == [(0, True)], "its group is empty now"
    assert room.is_full() is False
