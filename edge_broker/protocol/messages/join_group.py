"""JoinGroup (11): enter a consumer group, or come back to it.

Declarations only. Source: Kafka's schemas, KIP-394 for the two steps, KIP-345 for static members.
"""

from __future__ import annotations

from edge_broker.protocol.message import Message, array
from edge_broker.protocol.scalars import boolean, bytes_, int16, int32, nullable_string, string


class JoinGroupRequestProtocol(Message):
    """An assignor the member can do, and what it has to say for it."""

    name: str = string()
    metadata: bytes = bytes_()


class JoinGroupRequest(Message, flexible_from=6):
    """Let me in. Versions 0-9; from 4 a member without an id is first given one."""

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1)
    member_id: str = string()
    group_instance_id: str | None = nullable_string("5+", default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = nullable_string("8+", default=None)


class JoinGroupResponseMember(Message):
    """A member, as told to the leader."""

    member_id: str = string()
    group_instance_id: str | None = nullable_string("5+", default=None)
    metadata: bytes = bytes_()


class JoinGroupResponse(Message, flexible_from=6):
    """The generation, its leader and, to the leader, all members."""

    throttle_time_ms: int = int32("2+")
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = nullable_string("7+", default=None)
    protocol_name: str | None = nullable_string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+")
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
