"""LeaveGroup (13): members go, from version 3 several at once.

Declarations only. Source: Kafka's schemas, KIP-345, KIP-800 for reasons.
"""

from __future__ import annotations

from edge_broker.protocol.message import Message, array
from edge_broker.protocol.scalars import int16, int32, nullable_string, string


class MemberIdentity(Message):
    """A member that leaves."""

    member_id: str = string("3+")
    group_instance_id: str | None = nullable_string("3+", default=None)
    reason: str | None = nullable_string("5+", default=None)


class LeaveGroupRequest(Message, flexible_from=4):
    """`member_id` (to version 2) or `members` (from 3) leave. Versions 0-5."""

    group_id: str = string()
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


class MemberResponse(Message):
    """Whether one member has left."""

    member_id: str = string("3+")
    group_instance_id: str | None = nullable_string("3+")
    error_code: int = int16("3+")


class LeaveGroupResponse(Message, flexible_from=4):
    """One answer per member from version 3."""

    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, "3+")
