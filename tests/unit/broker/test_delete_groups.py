"""DeleteGroups and OffsetDelete: what goes, what stays, and when it is answered."""

from __future__ import annotations

from collections import Counter
from struct import pack

import pytest

from edge_broker.broker.state.group_registry import Groups
from edge_broker.coordinator.group import Group, Member
from edge_broker.coordinator.group_requests import Protocol
from edge_broker.coordinator.subscriptions import subscribed_topics
from edge_broker.errors import ErrorCode
from edge_broker.network.log_lines import LINES_MAX
from edge_broker.protocol.api import DELETE_GROUPS, JOIN_GROUP, OFFSET_COMMIT, OFFSET_DELETE, SYNC_GROUP
from edge_broker.protocol.messages.delete_groups import DeleteGroupsRequest
from edge_broker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from edge_broker.protocol.messages.offset_commit import OffsetCommitRequest
from edge_broker.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from edge_broker.protocol.messages.sync_group import SyncGroupRequest
from edge_broker.testing.client import Client
from edge_broker.testing.site import Site
from tests.support.half_way import HalfWay
from tests.support.storage import failing
from tests.unit.broker.test_groups_and_ids import OFFSETS, commit, committed, find

NOTHING = (-1, "")


def subscription(*topics: str) -> bytes:
    """A consumer's metadata, version 0."""
    named = b"".join(pack(">h", len(topic)) + topic.encode() for topic in topics)
    return pack(">hi", 0, len(topics)) + named + pack(">i", -1)


def site(**settings: object) -> Site:
    made = Site({name.replace("_", "."): value for name, value in settings.items()})
    made.topic(partitions=2)
    find(made.client(), "g")
    return made


def delete(at: Site, *groups: str) -> dict[str, int]:
    answer = at.client().ask(DELETE_GROUPS, DeleteGroupsRequest(groups_names=list(groups)))
    return {one.group_id: one.error_code for one in answer.results}


def offset_delete(at: Site, group: str, *places: tuple[str, int]) -> tuple[int, list[int]]:
    topics = [
        OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index)])
        for name, index in places
    ]
    answer = at.client().ask(OFFSET_DELETE, OffsetDeleteRequest(group_id=group, topics=topics))
    return answer.error_code, [one.error_code for topic in answer.topics for one in topic.partitions]


def join(at: Site, *topics: str, group: str = "g", protocol_type: str = "consumer") -> tuple[Client, str, int]:
    """A member that is there to stay: its client, its id and the generation."""
    client, member_id = at.client(), ""
    for _ in range(2):
        protocols = [JoinGroupRequestProtocol(name="range", metadata=subscription(*topics))]
        answer = client.ask(
            JOIN_GROUP,
            JoinGroupRequest(
                group_id=group,
                session_timeout_ms=30_000,
                rebalance_timeout_ms=30_000,
                member_id=member_id,
                protocol_type=protocol_type,
                protocols=protocols,
            ),
        )
        member_id = answer.member_id
    assert answer.error_code == 0
    asked = SyncGroupRequest(
        group_id=group,
        generation_id=answer.generation_id,
        member_id=member_id,
        protocol_type=protocol_type,
        protocol_name="range",
    )
    assert client.ask(SYNC_GROUP, asked).error_code == 0
    return client, member_id, answer.generation_id


def leave(at: Site) -> None:
    """Every session ends."""
    at.loop.advance(60_000)
    at.broker.effects.start(at_expiry(at))
    at.dispatcher.apply()
    at.run_until_idle()


def at_expiry(at: Site):  # type: ignore[no-untyped-def]
    from edge_broker.broker.operations.groups.group_expiry import expire_members

    return expire_members(at.broker)


@pytest.mark.parametrize("how", ["kill", "close"])
def test_a_group_goes_with_what_it_committed_and_stays_gone(how: str) -> None:
    here = site()
    for group in ("g", "other"):
        here.client().ask(OFFSET_COMMIT, commit(5, ("t", 0), ("t", 1), group=group))
    assert delete(here, "g") == {"g": 0}
    assert "g" not in here.broker.groups.of("g").groups
    assert committed(here) == NOTHING
    assert committed(here, group="other") == (5, "m5")
    assert delete(here, "g") == {"g": ErrorCode.GROUP_ID_NOT_FOUND}
    again = here.reopen(how)
    assert committed(again) == NOTHING
    assert "g" not in again.broker.groups.of("g").groups
    assert committed(again, group="other") == (5, "m5")


def test_a_group_that_had_members_goes_with_its_record() -> None:
    here = site()
    _, member_id, generation = join(here, "t")
    asked = OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=generation, member_id=member_id, topics=commit(5).topics
    )
    here.client().ask(OFFSET_COMMIT, asked)
    assert delete(here, "g") == {"g": ErrorCode.NON_EMPTY_GROUP}
    assert committed(here) == (5, "m5")
    leave(here)
    assert delete(here, "g") == {"g": 0}
    again = here.reopen("kill")
    assert (committed(again), dict(again.broker.groups.of("g").groups)) == (NOTHING, {})


def test_each_group_has_an_answer_of_its_own_and_one_that_is_named_twice_one_alone() -> None:
    here = site()
    here.client().ask(OFFSET_COMMIT, commit(5))
    assert delete(here, "none", "g", "g", "") == {
        "none": ErrorCode.GROUP_ID_NOT_FOUND,
        "g": 0,
        "": ErrorCode.GROUP_ID_NOT_FOUND,
    }


def test_a_group_of_many_offsets_goes_in_pieces() -> None:
    here = Site()
    here.topic(partitions=1000)
    find(here.client(), "g")
    places = [("t", index) for index in range(1000)]
    here.client().ask(OFFSET_COMMIT, commit(5, *places))
    assert delete(here, "g") == {"g": 0}
    assert not list(here.broker.groups.of("g").offsets.groups())
    assert not here.broker.groups.of("g").groups


@pytest.mark.parametrize("what", ["group", "offset"])
def test_what_cannot_be_kept_is_not_deleted(what: str) -> None:
    here = site()
    here.client().ask(OFFSET_COMMIT, commit(5))
    here.disk.fault = failing("datasync", f"/{OFFSETS}-0/")
    if what == "group":
        assert delete(here, "g")["g"] in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    else:
        assert offset_delete(here, "g", ("t", 0))[1] != [0]
    here.disk.fault = None
    assert committed(here) == (5, "m5")


@pytest.mark.parametrize("durable", [True, False])
def test_the_answer_waits_for_the_sync(durable: bool) -> None:
    here = site()
    here.client().ask(OFFSET_COMMIT, commit(5))
    client = here.client()
    client.send(DELETE_GROUPS, DeleteGroupsRequest(groups_names=["g"]))
    assert client.answers() == []
    if durable:
        here.run_until_idle()
        assert client.answer().results[0].error_code == 0
    again = here.reopen("kill" if durable else "crash")
    assert committed(again) in ([NOTHING] if durable else [NOTHING, (5, "m5")])


def test_a_required_group_stays_with_the_offsets_of_its_topic(capsys: pytest.CaptureFixture[str]) -> None:
    here = site()
    here.topic("kept", config={"edge.required.groups": "g,mirror"})
    here.client().ask(OFFSET_COMMIT, commit(5, ("t", 0), ("kept", 0)))
    assert delete(here, "g") == {"g": ErrorCode.POLICY_VIOLATION}
    assert "edge.required.groups of kept names it" in capsys.readouterr().err
    assert offset_delete(here, "g", ("kept", 0), ("t", 0)) == (0, [ErrorCode.POLICY_VIOLATION, 0])
    assert "edge.required.groups of kept names the group" in capsys.readouterr().err
    assert (committed(here, "kept"), committed(here)) == ((5, "m5"), NOTHING)
    assert delete(here, "mirror") == {"mirror": ErrorCode.GROUP_ID_NOT_FOUND}


def test_what_is_said_of_kept_groups_is_limited_in_rate_and_length(capsys: pytest.CaptureFixture[str]) -> None:
    here = site()
    names = [f"kept-{number}" for number in range(5)]
    for name in names:
        here.topic(name, config={"edge.required.groups": "g"})
    here.client().ask(OFFSET_COMMIT, commit(5))
    for _ in range(30):
        delete(here, "g")
        offset_delete(here, "g", *((name, 0) for name in names))
    lines = capsys.readouterr().err.splitlines()
    assert Counter(line.split()[3] for line in lines) == {"group_kept": LINES_MAX, "offsets_kept": LINES_MAX}
    assert "edge.required.groups of kept-0, kept-1, kept-2 and 2 more names" in lines[-1]


def test_offsets_go_one_by_one_and_the_group_with_the_last() -> None:
    here = site()
    here.client().ask(OFFSET_COMMIT, commit(5, ("t", 0), ("t", 1)))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert offset_delete(here, "g", ("t", 0), ("t", 7), ("gone", 0)) == (0, [0, unknown, unknown])
    assert committed(here) == NOTHING
    assert "g" in here.broker.groups.of("g").groups
    assert offset_delete(here, "g", ("t", 0), ("t", 1)) == (0, [0, 0])
    assert "g" not in here.broker.groups.of("g").groups
    assert offset_delete(here, "g", ("t", 0)) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    assert offset_delete(here, "", ("t", 0)) == (ErrorCode.INVALID_GROUP_ID, [])
    assert committed(here.reopen("kill")) == NOTHING


def test_what_a_living_group_reads_stays() -> None:
    here = site()
    here.topic("left")
    here.client().ask(OFFSET_COMMIT, commit(5, ("t", 0), ("left", 0)))
    join(here, "t")
    assert offset_delete(here, "g", ("t", 0), ("left", 0)) == (0, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0])
    assert (committed(here), committed(here, "left")) == ((5, "m5"), NOTHING)
    assert "g" in here.broker.groups.of("g").groups


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_member_that_joins_meanwhile_keeps_its_offsets(when: str) -> None:
    here = Site()
    here.topic(partitions=1000)
    find(here.client(), "g")
    places = [("t", index) for index in range(1000)]
    here.client().ask(OFFSET_COMMIT, commit(5, *places))
    partitions = [OffsetDeleteRequestPartition(partition_index=index) for _, index in places]
    request = OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name="t", partitions=partitions)])
    slow = HalfWay(here, OFFSET_DELETE, request, steps=1000 + (1 if when == "before" else 2))
    join(here, "t")
    answer = slow.answer()
    errors = {one.error_code for one in answer.topics[0].partitions}
    kept = here.broker.groups.of("g").offsets.keys_of("g")
    assert answer.error_code == 0
    assert errors == (
        {ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC} if when == "before" else {0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
    )
    assert len(kept) == (1000 if when == "before" else 1000 - 256)


def test_offsets_that_are_not_there_cost_no_write() -> None:
    here = site()
    here.client().ask(OFFSET_COMMIT, commit(5))
    (log,) = here.store.topics[OFFSETS].partitions
    end = log.log_end_offset
    assert offset_delete(here, "g", ("t", 1)) == (0, [0])
    assert log.log_end_offset == end


def test_a_group_of_another_kind_must_be_empty() -> None:
    here = site()
    here.client().ask(OFFSET_COMMIT, commit(5))
    join(here, "t", protocol_type="connect")
    assert offset_delete(here, "g", ("t", 0)) == (ErrorCode.NON_EMPTY_GROUP, [])


def test_groups_are_refused_until_they_are_loaded() -> None:
    here = site()
    here.broker.groups = Groups(here.broker.config, here.store, here.broker.is_connected)
    assert delete(here, "g") == {"g": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    assert offset_delete(here, "g", ("t", 0)) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])


@pytest.mark.parametrize(
    ("metadata", "known"),
    [
        (subscription("a", "b"), True),
        (subscription(), True),
        (b"", False),
        (pack(">hi", 0, 1), False),
        (pack(">hih", 0, 1, -1), False),
        (pack(">hih", 0, 1, 9) + b"short", False),
        (pack(">hih", 0, 1, 1) + b"\xff", False),
        (pack(">hi", 0, 0x7FFFFFFF), False),
        (subscription(*map(str, range(10_000))), True),
        (subscription(*map(str, range(40_000))), False),
    ],
)
def test_a_subscription_that_cannot_be_read_is_to_everything(metadata: bytes, known: bool) -> None:
    group = Group("g", 0)
    group.members["m"] = Member(
        member_id="m",
        instance_id=None,
        client_id="",
        client_host="",
        session_timeout_ms=1,
        rebalance_timeout_ms=1,
        protocols=(Protocol("range", metadata),),
    )
    assert ("z" in subscribed_topics(group)) is not known
