"""Group membership, committed offsets, and what admin clients are told of groups."""

from __future__ import annotations

from typing import Any

from edge_broker.protocol.api import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SYNC_GROUP,
)
from edge_broker.protocol.messages.delete_groups import DeleteGroupsRequest
from edge_broker.protocol.messages.describe_groups import DescribeGroupsRequest
from edge_broker.protocol.messages.heartbeat import HeartbeatRequest
from edge_broker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from edge_broker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from edge_broker.protocol.messages.list_groups import ListGroupsRequest
from edge_broker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from edge_broker.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from edge_broker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from edge_broker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.differential.session import Session, case

MEMBER_ID_REQUIRED = 79


def _join(group: str, member: str = "", *, instance: str | None = None, **more: Any) -> JoinGroupRequest:
    fields: dict[str, Any] = {
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"meta")],
        **more,
    }
    return JoinGroupRequest(group_id=group, member_id=member, group_instance_id=instance, **fields)


def _joined(s: Session, version: int, group: str, **more: Any) -> Any:
    """Join as the only member; from version 4 a member is given its id first."""
    s.coordinator(group)
    answer = s.ask(JOIN_GROUP, _join(group, **more), version, label="join")
    if answer.error_code == MEMBER_ID_REQUIRED:
        answer = s.ask(JOIN_GROUP, _join(group, answer.member_id, **more), version, label="join with the id")
    return answer


def _sync(group: str, generation: int, member: str, *, to: str | None = None, **more: Any) -> SyncGroupRequest:
    fields: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range", **more}
    given = [] if to is None else [SyncGroupRequestAssignment(member_id=to, assignment=b"mine")]
    return SyncGroupRequest(group_id=group, generation_id=generation, member_id=member, assignments=given, **fields)


@case(JOIN_GROUP)
def join_group(s: Session, version: int) -> None:
    group = s.name("g")
    joined = _joined(s, version, group)
    s.ask(JOIN_GROUP, _join(group, joined.member_id), version, label="again")
    s.ask(JOIN_GROUP, _join(group, "nobody"), version, label="unknown member")


@case(JOIN_GROUP, versions=(3, 5, 9))
def join_group_refused(s: Session, version: int) -> None:
    group = s.name("g")
    s.coordinator(group)
    for label, more in {
        "session timeout 1": {"session_timeout_ms": 1},
        "session timeout 2^31-1": {"session_timeout_ms": 0x7FFFFFFF},
        "no protocols": {"protocols": []},
        "no protocol type": {"protocol_type": ""},
    }.items():
        s.ask(JOIN_GROUP, _join(group, **more), version, label=label, on=label)
    s.ask(JOIN_GROUP, _join(""), version, label="empty group", on="empty group")
    joined = _joined(s, version, group)
    other = _join(group, joined.member_id, protocol_type="connect")
    s.ask(JOIN_GROUP, other, version, label="another protocol type", on="type")


@case(SYNC_GROUP)
def sync_group(s: Session, version: int) -> None:
    group = s.name("g")
    joined = _joined(s, 5, group)
    member, generation = joined.member_id, joined.generation_id
    s.ask(SYNC_GROUP, _sync(group, generation + 1, member), version, label="another generation")
    s.ask(SYNC_GROUP, _sync(group, generation, "nobody"), version, label="unknown member")
    s.ask(SYNC_GROUP, _sync(s.name("missing"), 1, "m"), version, label="unknown group")
    s.ask(SYNC_GROUP, _sync("", 1, "m"), version, label="empty group")
    if version >= 5:
        wrong = _sync(group, generation, member, protocol_type="other")
        s.ask(SYNC_GROUP, wrong, version, label="another protocol type")
        wrong = _sync(group, generation, member, protocol_name="other")
        s.ask(SYNC_GROUP, wrong, version, label="another protocol")
        wrong = _sync(group, generation, member, protocol_type=None, protocol_name=None)
        s.ask(SYNC_GROUP, wrong, version, label="no protocol")
    s.ask(SYNC_GROUP, _sync(group, generation, member, to=member), version, label="good")
    s.ask(SYNC_GROUP, _sync(group, generation, member), version, label="again")


@case(HEARTBEAT)
def heartbeat(s: Session, version: int) -> None:
    group = s.name("g")
    joined = _joined(s, 5, group)
    s.ask(SYNC_GROUP, _sync(group, joined.generation_id, joined.member_id, to=joined.member_id), 3)
    for label, name, generation, member in (
        ("good", group, joined.generation_id, joined.member_id),
        ("another generation", group, joined.generation_id + 1, joined.member_id),
        ("unknown member", group, joined.generation_id, "nobody"),
        ("unknown group", s.name("missing"), 1, "m"),
        ("empty group", "", 1, "m"),
    ):
        wanted = HeartbeatRequest(group_id=name, generation_id=generation, member_id=member)
        s.ask(HEARTBEAT, wanted, version, label=label)


@case(LEAVE_GROUP)
def leave_group(s: Session, version: int) -> None:
    group = s.name("g")
    joined = _joined(s, 5, group)
    for label, name, member in (
        ("unknown member", group, "nobody"),
        ("good", group, joined.member_id),
        ("again", group, joined.member_id),
        ("unknown group", s.name("missing"), "m"),
        ("empty group", "", "m"),
    ):
        wanted = LeaveGroupRequest(group_id=name, member_id=member, members=[MemberIdentity(member_id=member)])
        s.ask(LEAVE_GROUP, wanted, version, label=label)


@case(JOIN_GROUP, versions=(5, 9))
def static_members(s: Session, version: int) -> None:
    group = s.name("g")
    joined = _joined(s, version, group, instance="one")
    s.ask(SYNC_GROUP, _sync(group, joined.generation_id, joined.member_id, to=joined.member_id), 3, label="sync")
    again = s.ask(JOIN_GROUP, _join(group, instance="one"), version, label="the same instance again")
    old = HeartbeatRequest(
        group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, group_instance_id="one"
    )
    s.ask(HEARTBEAT, old, 3, label="its former self")
    leave = LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id="", group_instance_id="one")])
    s.ask(LEAVE_GROUP, leave, 5, label="leaves by its instance")
    leave = LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id="", group_instance_id="two")])
    s.ask(LEAVE_GROUP, leave, 5, label="an unknown instance leaves")
    s.note("generations", [joined.generation_id, again.generation_id])


@case(JOIN_GROUP, versions=(2, 9))
def two_members(s: Session, version: int) -> None:
    """The second member's JoinGroup begins a rebalance; both get a new generation."""
    group = s.name("g")
    first = _joined(s, version, group)
    s.ask(SYNC_GROUP, _sync(group, first.generation_id, first.member_id, to=first.member_id), 3, label="sync")
    member = s.ask(JOIN_GROUP, _join(group), version, on="second", label="second").member_id if version >= 4 else ""
    s.send(JOIN_GROUP, _join(group, member), version, on="second")
    beat = HeartbeatRequest(group_id=group, generation_id=first.generation_id, member_id=first.member_id)
    while s.ask(HEARTBEAT, beat, 3, label="until the rebalance").error_code == 0:
        s.asked.pop()
    s.ask(JOIN_GROUP, _join(group, first.member_id), version, label="first again")
    second = s.receive(JOIN_GROUP, version, on="second", label="second's answer")
    s.send(SYNC_GROUP, _sync(group, second.generation_id, second.member_id), 3, on="second")
    leader = _sync(group, second.generation_id, first.member_id, to=first.member_id)
    s.ask(SYNC_GROUP, leader, 3, label="the leader's")
    s.receive(SYNC_GROUP, 3, on="second", label="the follower's, with nothing")


def _commit(group: str, topic: str, *parts: tuple[int, int, str | None], **more: Any) -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata=text)
        for index, offset, text in parts
    ]
    return OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)], **more
    )


@case(OFFSET_COMMIT)
def offset_commit(s: Session, version: int) -> None:
    group, topic = s.name("g"), s.topic(partitions=2)
    s.coordinator(group)
    s.ask(OFFSET_COMMIT, _commit(group, topic, (0, 5, "m"), (1, 0, None)), version, label="good")
    s.ask(OFFSET_COMMIT, _commit(group, topic, (0, -1, "")), version, label="negative offset")
    s.ask(OFFSET_COMMIT, _commit(group, topic, (7, 5, "")), version, label="missing partition")
    s.ask(OFFSET_COMMIT, _commit(group, s.name("missing"), (0, 5, "")), version, label="missing topic")
    s.ask(OFFSET_COMMIT, _commit(group, topic, (0, 6, "x" * 5000)), version, label="large metadata")
    s.ask(OFFSET_COMMIT, _commit(group, topic, (0, 7, ""), (0, 8, "")), version, label="a partition twice")
    if version >= 1:
        wanted = _commit(group, topic, (0, 5, ""), member_id="nobody", generation_id_or_member_epoch=3)
        s.ask(OFFSET_COMMIT, wanted, version, label="unknown member")
    s.ask(OFFSET_FETCH, _fetch_offsets(group, topic, 0, 1), 5, label="what is committed")


@case(OFFSET_COMMIT, versions=(2, 9))
def offset_commit_of_members(s: Session, version: int) -> None:
    group, topic = s.name("g"), s.topic()
    joined = _joined(s, 5, group)
    member: dict[str, Any] = {"member_id": joined.member_id, "generation_id_or_member_epoch": joined.generation_id}
    s.ask(OFFSET_COMMIT, _commit(group, topic, (0, 1, ""), **member), version, label="before the sync")
    s.ask(SYNC_GROUP, _sync(group, joined.generation_id, joined.member_id, to=joined.member_id), 3)
    s.ask(OFFSET_COMMIT, _commit(group, topic, (0, 2, ""), **member), version, label="member")
    other = {**member, "generation_id_or_member_epoch": joined.generation_id + 1}
    s.ask(OFFSET_COMMIT, _commit(group, topic, (0, 3, ""), **other), version, label="another generation")
    other = {**member, "member_id": "nobody"}
    s.ask(OFFSET_COMMIT, _commit(group, topic, (0, 4, ""), **other), version, label="another member")
    s.ask(OFFSET_COMMIT, _commit(group, topic, (0, 5, "")), version, label="no member while there is one")
    s.ask(OFFSET_COMMIT, _commit("", topic, (0, 5, "")), version, label="empty group")
    s.ask(OFFSET_FETCH, _fetch_offsets(group, topic, 0), 5, label="what is committed")


def _fetch_offsets(group: str, topic: str, *partitions: int) -> OffsetFetchRequest:
    indexes = list(partitions)
    return OffsetFetchRequest(
        group_id=group,
        topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=indexes)],
        groups=[
            OffsetFetchRequestGroup(
                group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=indexes)]
            )
        ],
    )


@case(OFFSET_FETCH)
def offset_fetch(s: Session, version: int) -> None:
    group, topic = s.name("g"), s.topic(partitions=2)
    s.coordinator(group)
    s.ask(OFFSET_COMMIT, _commit(group, topic, (0, 5, "m")), 8)
    s.ask(OFFSET_FETCH, _fetch_offsets(group, topic, 0, 1, 7), version, label="one of three")
    s.ask(OFFSET_FETCH, _fetch_offsets(group, s.name("missing"), 0), version, label="missing topic")
    s.ask(OFFSET_FETCH, _fetch_offsets(s.name("nobody"), topic, 0), version, label="unknown group")
    s.ask(OFFSET_FETCH, _fetch_offsets("", topic, 0), version, label="empty group")
    if version >= 2:
        every = OffsetFetchRequest(
            group_id=group, topics=None, groups=[OffsetFetchRequestGroup(group_id=group, topics=None)]
        )
        s.ask(OFFSET_FETCH, every, version, label="all")


@case(DESCRIBE_GROUPS)
def describe_groups(s: Session, version: int) -> None:
    group = s.name("g")
    joined = _joined(s, 5, group)
    s.ask(DESCRIBE_GROUPS, DescribeGroupsRequest(groups=[group]), version, label="before the sync")
    s.ask(SYNC_GROUP, _sync(group, joined.generation_id, joined.member_id, to=joined.member_id), 3)
    s.ask(DESCRIBE_GROUPS, DescribeGroupsRequest(groups=[group]), version, label="stable")
    s.ask(DESCRIBE_GROUPS, DescribeGroupsRequest(groups=[group, s.name("missing")]), version, label="one missing")
    s.ask(DESCRIBE_GROUPS, DescribeGroupsRequest(groups=[""]), version, label="empty name")
    s.ask(DESCRIBE_GROUPS, DescribeGroupsRequest(groups=[]), version, label="none")
    if version >= 3:
        wanted = DescribeGroupsRequest(groups=[group], include_authorized_operations=True)
        s.ask(DESCRIBE_GROUPS, wanted, version, label="authorized operations")


@case(LIST_GROUPS)
def list_groups(s: Session, version: int) -> None:
    """Other cases leave groups behind, so that only the one of this case is compared."""
    group = s.name("g")
    _joined(s, 5, group)
    requests = {"all": ListGroupsRequest()}
    if version >= 4:
        requests["of a state"] = ListGroupsRequest(states_filter=["CompletingRebalance"])
        requests["of no such state"] = ListGroupsRequest(states_filter=["Nonsense"])
    if version >= 5:
        requests["of a type"] = ListGroupsRequest(types_filter=["classic"])
        requests["of another type"] = ListGroupsRequest(types_filter=["consumer"])
        requests["of no such type"] = ListGroupsRequest(types_filter=["nonsense"])
    for label, request in requests.items():
        s.ask(LIST_GROUPS, request, version, label=label, on=label)
        answer = s.asked[-1].answer
        answer["groups"] = {name: found for name, found in answer["groups"].items() if name == group}


def _delete_offsets(group: str, topic: str, *partitions: int) -> OffsetDeleteRequest:
    wanted = [OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
    return OffsetDeleteRequest(group_id=group, topics=[OffsetDeleteRequestTopic(name=topic, partitions=wanted)])


def _subscribed(*topics: str) -> bytes:
    """The metadata of a consumer that reads these topics."""
    named = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + named + b"\xff\xff\xff\xff"


@case(DELETE_GROUPS)
def delete_groups(s: Session, version: int) -> None:
    group, other, topic = s.name("g"), s.name("h"), s.topic()
    s.coordinator(group)
    s.ask(OFFSET_COMMIT, _commit(group, topic, (0, 5, "m")), 8)
    joined = _joined(s, 5, other)
    asked = DeleteGroupsRequest(groups_names=[group, other, s.name("missing"), group])
    s.ask(DELETE_GROUPS, asked, version, label="one empty, one not, one missing, one twice")
    s.ask(OFFSET_FETCH, _fetch_offsets(group, topic, 0), 5, label="what is committed then")
    s.ask(DELETE_GROUPS, DeleteGroupsRequest(groups_names=[group]), version, label="again")
    s.ask(DELETE_GROUPS, DeleteGroupsRequest(groups_names=[]), version, label="none")
    leave = LeaveGroupRequest(group_id=other, member_id=joined.member_id)
    s.ask(LEAVE_GROUP, leave, 2, label="the member leaves")
    s.ask(DELETE_GROUPS, DeleteGroupsRequest(groups_names=[other]), version, label="empty now")
    s.ask(DESCRIBE_GROUPS, DescribeGroupsRequest(groups=[other]), 5, label="described then")


@case(OFFSET_DELETE)
def offset_delete(s: Session, version: int) -> None:
    group, topic, other = s.name("g"), s.topic(partitions=2), s.topic("other")
    s.coordinator(group)
    s.ask(OFFSET_DELETE, _delete_offsets(group, topic, 0), version, label="no group")
    s.ask(OFFSET_COMMIT, _commit(group, topic, (0, 5, "m"), (1, 6, "m")), 8)
    s.ask(OFFSET_COMMIT, _commit(group, other, (0, 7, "m")), 8)
    s.ask(OFFSET_DELETE, _delete_offsets(group, topic, 0, 7), version, label="one that is there, one that is not")
    s.ask(OFFSET_DELETE, _delete_offsets(group, topic, 0), version, label="again")
    s.ask(OFFSET_DELETE, _delete_offsets(group, s.name("missing"), 0), version, label="missing topic")
    s.ask(OFFSET_DELETE, OffsetDeleteRequest(group_id=group), version, label="none")
    s.ask(OFFSET_DELETE, _delete_offsets("", topic, 0), version, label="empty group")
    s.ask(OFFSET_FETCH, _fetch_offsets(group, topic, 0, 1), 5, label="what is committed then")
    protocols = [JoinGroupRequestProtocol(name="range", metadata=_subscribed(topic))]
    joined = _joined(s, 5, group, protocols=protocols)
    s.ask(SYNC_GROUP, _sync(group, joined.generation_id, joined.member_id, to=joined.member_id), 3)
    s.ask(OFFSET_DELETE, _delete_offsets(group, topic, 1), version, label="of a topic that is read")
    s.ask(OFFSET_DELETE, _delete_offsets(group, other, 0), version, label="of one that is not")
    s.ask(OFFSET_FETCH, _fetch_offsets(group, topic, 0, 1), 5, label="what is committed at last")


@case(OFFSET_DELETE)
def offset_delete_of_another_kind(s: Session, version: int) -> None:
    group, topic = s.name("g"), s.topic()
    s.coordinator(group)
    s.ask(OFFSET_COMMIT, _commit(group, topic, (0, 5, "m")), 8)
    _joined(s, 5, group, protocol_type="connect")
    s.ask(OFFSET_DELETE, _delete_offsets(group, topic, 0), version, label="not a consumer")
