"""SyncGroup (14): the leader hands in the assignment, every member gets its part.

Declarations only. Source: Kafka's schemas.
"""

from __future__ import annotations

from edge_broker.protocol.message import Message, array
from edge_broker.protocol.scalars import bytes_, int16, int32, nullable_string, string


class SyncGroupRequestAssignment(Message):
    """The leader's assignment of one member."""

    member_id: str = string()
    assignment: bytes = bytes_()


class SyncGroupRequest(Message, flexible_from=4):
    """What is mine? From the leader, with everybody's assignment. Versions 0-5."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = nullable_string("3+", default=None)
    protocol_type: str | None = nullable_string("5+", default=None)
    protocol_name: str | None = nullable_string("5+", default=None)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Message, flexible_from=4):
    """The member's assignment."""

    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    protocol_type: str | None = nullable_string("5+", default=None)
    protocol_name: str | None = nullable_string("5+", default=None)
    assignment: bytes = bytes_()
