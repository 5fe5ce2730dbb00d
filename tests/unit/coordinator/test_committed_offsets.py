"""Committed offsets, what survives a restart, and how groups look from outside."""

import pytest

from edge_broker.coordinator import offset_records as records
from edge_broker.coordinator.descriptions import describe_groups, list_groups
from edge_broker.coordinator.group import GroupState
from edge_broker.coordinator.group_coordinator import GroupCoordinator
from edge_broker.coordinator.group_requests import (
    Commit,
    CommitPartition,
    CommitResult,
    CommittedPartition,
    DescribedGroup,
    DescribedMember,
    GroupSettings,
    ListedGroup,
)
from edge_broker.errors import ErrorCode
from tests.support.groups import Site


def commit_error(site: Site, token: int) -> ErrorCode:
    result = site.answers[token]
    assert isinstance(result, CommitResult)
    return result.partitions[0].error


def committed(site: Site, group_id: str = "group") -> int | None:
    found = site.coordinator.offsets.get(group_id, "readings", 0)
    return found and found.offset


# Commits


def test_a_commit_is_answered_and_seen_after_the_sync_only() -> None:
    site = Site(sync_at_once=False)
    token = site.commit(7, metadata="site=Köln")
    assert token not in site.answers
    assert committed(site) is None
    site.sync_disk()
    assert commit_error(site, token) is ErrorCode.NONE
    assert site.coordinator.offsets.fetch("group", None) == [
        ("readings", [(0, records.CommittedOffset(7, 3, "site=Köln", site.now_ms, site.now_ms))])
    ]


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_a_commit_that_cannot_be_stored_changes_nothing(failure: ErrorCode, told: ErrorCode) -> None:
    site = Site(sync_at_once=False)
    token = site.commit(7)
    site.fail_disk(failure)
    assert commit_error(site, token) is told
    assert committed(site) is None
    assert not site.coordinator.groups


def test_a_consumer_outside_any_group_commits_with_generation_minus_1() -> None:
    site = Site()
    assert commit_error(site, site.commit(7)) is ErrorCode.NONE
    assert commit_error(site, site.commit(8)) is ErrorCode.NONE
    assert committed(site) == 8
    assert list_groups(site.coordinator) == [ListedGroup("group", "", "Empty", "classic")]


def test_outside_commits_are_refused_while_the_group_has_members() -> None:
    site = Site()
    (leader,) = site.stable_group(1)
    assert commit_error(site, site.commit(7)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_error(site, site.commit(7, member_id=leader)) is ErrorCode.ILLEGAL_GENERATION
    site.leave((leader, None))
    assert commit_error(site, site.commit(7)) is ErrorCode.NONE


@pytest.mark.parametrize(("version", "error"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_member_of_a_missing_group_is_told_what_its_version_knows(version: int, error: ErrorCode) -> None:
    site = Site()
    assert commit_error(site, site.commit(7, member_id="x", generation_id=1, version=version)) is error


@pytest.mark.parametrize(
    ("member", "generation_id", "instance_id", "error"),
    [
        ("pi-1", 1, "pi-1", ErrorCode.NONE),
        ("pi-1", 1, None, ErrorCode.NONE),
        ("pi-1", 0, "pi-1", ErrorCode.ILLEGAL_GENERATION),
        ("pi-1", 2, "pi-1", ErrorCode.ILLEGAL_GENERATION),
        ("stranger", 1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("stranger", 1, "pi-1", ErrorCode.FENCED_INSTANCE_ID),
        ("pi-1", 1, "pi-9", ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_member_commits_in_its_own_generation(
    member: str, generation_id: int, instance_id: str | None, error: ErrorCode
) -> None:
    site = Site()
    ids = site.stable_static_group("pi-1")
    token = site.commit(7, member_id=ids.get(member, member), generation_id=generation_id, instance_id=instance_id)
    assert commit_error(site, token) is error
    assert committed(site) == (7 if error is ErrorCode.NONE else None)


def test_a_member_may_commit_before_it_joins_again_but_not_before_it_has_its_assignment() -> None:
    site = Site()
    leader, follower = site.stable_group()
    site.join(leader)
    assert commit_error(site, site.commit(7, member_id=follower, generation_id=2)) is ErrorCode.NONE
    site.join(follower)
    refused = site.commit(8, member_id=follower, generation_id=3)
    assert commit_error(site, refused) is ErrorCode.REBALANCE_IN_PROGRESS
    assert committed(site) == 7


def test_a_commit_renews_the_session() -> None:
    site = Site()
    (leader,) = site.stable_group(1)
    for _ in range(3):
        site.wait(9_999)
        site.commit(7, member_id=leader, generation_id=1)
    assert site.heartbeat(leader, 1) is ErrorCode.NONE


def test_too_long_metadata_refuses_its_partition_alone() -> None:
    site = Site(GroupSettings(offset_metadata_max=4))
    partitions = tuple(
        CommitPartition("readings", number, 7, -1, metadata) for number, metadata in enumerate(["four", "fives", None])
    )
    site.asked.add(99)
    site.take(site.coordinator.commit(Commit(token=99, group_id="group", partitions=partitions), site.now_ms))
    assert site.answers[99] == CommitResult(
        (
            CommittedPartition("readings", 0, ErrorCode.NONE),
            CommittedPartition("readings", 1, ErrorCode.OFFSET_METADATA_TOO_LARGE),
            CommittedPartition("readings", 2, ErrorCode.NONE),
        )
    )
    assert [partition for _, found in site.coordinator.offsets.fetch("group", None) for partition, _ in found] == [0, 2]


def test_metadata_that_no_record_can_hold_is_refused_whatever_the_setting() -> None:
    site = Site(GroupSettings(offset_metadata_max=1_000_000))
    assert commit_error(site, site.commit(7, metadata="m" * 32768)) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert not site.log


def test_a_group_id_that_cannot_be_stored_is_refused() -> None:
    site = Site()
    assert commit_error(site, site.commit(7, group_id="g" * 32768)) is ErrorCode.INVALID_GROUP_ID


def test_a_group_without_a_name_keeps_offsets_as_in_kafka() -> None:
    site = Site()
    assert commit_error(site, site.commit(7, group_id="")) is ErrorCode.NONE
    site.restart()
    assert committed(site, "") == 7


def test_offsets_are_fetched_by_partition_or_all() -> None:
    site = Site()
    site.commit(7, partition=0)
    site.commit(9, partition=3)
    seven, nine = (records.CommittedOffset(offset, 3, "", site.now_ms, site.now_ms) for offset in (7, 9))

    def fetch(group: str, topics: list[tuple[str, list[int]]] | None) -> list[tuple[str, list[object]]]:
        return [(topic, list(found)) for topic, found in site.coordinator.offsets.fetch(group, topics)]

    assert fetch("group", None) == [("readings", [(0, seven), (3, nine)])]
    assert fetch("group", [("readings", [3, 1]), ("other", [0])]) == [
        ("readings", [(3, nine), (1, None)]),
        ("other", [(0, None)]),
    ]
    assert fetch("group", []) == []
    assert fetch("missing", None) == []
    assert fetch("missing", [("readings", [0])]) == [("readings", [(0, None)])]


# Loading


def test_members_offsets_and_assignments_survive_a_restart() -> None:
    site = Site()
    ids = site.stable_static_group("pi-1", "pi-2")
    site.commit(7, member_id=ids["pi-2"], generation_id=2)
    before = site.coordinator.groups["group"]
    site.restart()
    after = site.coordinator.groups["group"]
    assert (after.state, after.generation_id, after.leader_id) == (GroupState.STABLE, 2, ids["pi-1"])
    assert list(after.members) == list(before.members)
    assert after.static_ids == before.static_ids
    assert after.members[ids["pi-2"]].assignment == ids["pi-2"].encode()
    assert site.heartbeat(ids["pi-1"], 2, "pi-1") is ErrorCode.NONE
    assert committed(site) == 7
    assert commit_error(site, site.commit(8, member_id=ids["pi-1"], generation_id=2)) is ErrorCode.NONE


def test_members_that_stay_silent_after_a_restart_are_dropped() -> None:
    site = Site()
    site.stable_group()
    site.restart()
    site.wait(10_000 + 60_000)
    assert site.coordinator.groups["group"].state is GroupState.EMPTY


def test_an_empty_group_stays_empty_and_goes_on_counting_generations() -> None:
    site = Site()
    (leader,) = site.stable_group(1)
    site.leave((leader, None))
    site.restart()
    assert site.coordinator.groups["group"].state is GroupState.EMPTY
    assert site.joined(site.join_twice()).generation_id == 3


def test_offsets_of_consumers_outside_any_group_survive_a_restart() -> None:
    site = Site()
    site.commit(7)
    site.restart()
    assert committed(site) == 7
    assert commit_error(site, site.commit(8)) is ErrorCode.NONE


def test_tombstones_take_away_what_came_before() -> None:
    site = Site()
    site.stable_group(1)
    site.commit(7, group_id="other")
    key = records.offset_key(records.OffsetKey("other", "readings", 0))
    site.log += [(key, None), (records.group_key("group"), None), (records.group_key("never"), None), (key, None)]
    site.durable_records = len(site.log)
    site.restart()
    assert committed(site, "other") is None
    assert not site.coordinator.groups
    assert not site.coordinator.load_notes


def test_records_that_cannot_be_read_are_passed_over_and_named() -> None:
    key = records.offset_key(records.OffsetKey("group", "readings", 0))
    good = (key, records.offset_value(records.CommittedOffset(7, 3, "", 1)))
    newer = (b"\x00\x03\x00\x05group", b"")
    bad = [(key, b"\x00\x03"), (key, b"\x00\x09"), (b"", b""), (key + b"!", good[1]), (b"\xff\xff", b"")]
    coordinator = GroupCoordinator.load(GroupSettings(), [good, newer, *bad], 1)
    found = coordinator.offsets.get("group", "readings", 0)
    assert found is not None
    assert found.offset == 7
    assert [note.split()[1] for note in coordinator.load_notes] == ["2", "3", "4", "5", "6"]


def test_every_cut_of_a_record_is_noticed() -> None:
    site = Site()
    site.stable_group()
    key, value = site.log[-1]
    assert value is not None
    assert records.group_value(records.read_group_value(value)) == value
    offset = records.offset_value(records.CommittedOffset(7, 3, "metadata", 1))
    for end in range(len(value)):
        with pytest.raises(records.RecordFormatError):
            records.read_group_value(value[:end])
    for end in range(len(offset)):
        with pytest.raises(records.RecordFormatError):
            records.read_offset_value(offset[:end])
    for end in range(len(key)):
        with pytest.raises(records.RecordFormatError):
            records.read_key(key[:end])


# DescribeGroups, ListGroups


def test_a_stable_group_is_described_with_its_protocol_and_what_members_know() -> None:
    site = Site()
    ids = site.stable_static_group("pi-1")
    (described,) = describe_groups(site.coordinator, ["group"], knows_missing_group=True)
    member = DescribedMember(ids["pi-1"], "pi-1", "client", "/10.0.0.7", b"range-metadata", ids["pi-1"].encode())
    assert described == DescribedGroup(ErrorCode.NONE, None, "group", "Stable", "consumer", "range", (member,))


def test_a_group_in_a_rebalance_is_described_without_metadata() -> None:
    site = Site()
    leader, _ = site.stable_group()
    site.join(leader)
    (described,) = describe_groups(site.coordinator, ["group"], knows_missing_group=True)
    assert (described.state, described.protocol_name) == ("PreparingRebalance", "")
    assert {member.metadata for member in described.members} == {b""}


def test_missing_groups_are_dead_and_from_version_6_an_error() -> None:
    site = Site()
    old = describe_groups(site.coordinator, ["missing"], knows_missing_group=False)
    new = describe_groups(site.coordinator, ["missing", ""], knows_missing_group=True)
    assert old == [DescribedGroup(ErrorCode.NONE, None, "missing", "Dead")]
    assert new == [
        DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, "Group missing not found.", "missing", "Dead"),
        DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, "Group  not found.", "", "Dead"),
    ]


def test_groups_are_listed_by_state_and_type() -> None:
    site = Site()
    site.stable_group(1)
    site.commit(7, group_id="outside")
    stable, outside = (
        ListedGroup("group", "consumer", "Stable", "classic"),
        ListedGroup("outside", "", "Empty", "classic"),
    )
    assert list_groups(site.coordinator) == [stable, outside]
    assert list_groups(site.coordinator, states=["STABLE", "Dead"]) == [stable]
    assert list_groups(site.coordinator, states=["empty"], group_types=["Classic"]) == [outside]
    assert list_groups(site.coordinator, group_types=["consumer"]) == []


KEY = records.OffsetKey("group", "readings", 0)


@pytest.mark.parametrize("failed", [False, True])
def test_a_commit_behind_a_deletion_that_is_not_synced_stays(failed: bool) -> None:
    site = Site(sync_at_once=False)
    site.commit(5)
    site.sync_disk()
    site.take(site.coordinator.drop_offsets("group", [KEY], site.now_ms))
    token = site.commit(6)
    assert committed(site) == 5, "nothing of both is synced"
    if failed:
        site.fail_disk()
        assert committed(site) == 5
        return
    site.sync_disk()
    assert commit_error(site, token) is ErrorCode.NONE
    assert committed(site) == 6


def test_a_deletion_of_a_topic_reaches_a_commit_that_is_on_its_way_behind_another_deletion() -> None:
    site = Site(sync_at_once=False)
    site.commit(5)
    site.sync_disk()
    site.take(site.coordinator.drop_offsets("group", [KEY], site.now_ms))
    site.commit(6)
    first = site.unsynced.pop(0)  # the deletion's sync comes first
    site.durable_records += len(first.append)
    site.take(first.append_synced(site.now_ms))
    assert committed(site) is None
    assert site.coordinator.offsets.keys_of("group") == [KEY], "it may be there"
    site.take(site.coordinator.forget_topics(["readings"], site.now_ms))
    site.sync_disk()
    assert committed(site) is None
    site.restart()
    assert committed(site) is None
