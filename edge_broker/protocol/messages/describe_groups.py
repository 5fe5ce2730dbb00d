"""DescribeGroups (15): state and members of groups.

Declarations only. Source: Kafka's schemas, KIP-1043 for version 6.
"""

from __future__ import annotations

from edge_broker.protocol.message import Message, array
from edge_broker.protocol.messages.metadata import NO_AUTHORIZED_OPERATIONS
from edge_broker.protocol.scalars import boolean, bytes_, int16, int32, nullable_string, string


class DescribeGroupsRequest(Message, flexible_from=5):
    """How are these groups? Versions 0-6."""

    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean("3+")


class DescribedGroupMember(Message):
    """A member, its client and its assignment."""

    member_id: str = string()
    group_instance_id: str | None = nullable_string("4+", default=None)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = bytes_()
    member_assignment: bytes = bytes_()


class DescribedGroup(Message):
    """One group; from version 6 an unknown one is GROUP_ID_NOT_FOUND, before that state "Dead"."""

    error_code: int = int16()
    error_message: str | None = nullable_string("6+", default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=NO_AUTHORIZED_OPERATIONS)


class DescribeGroupsResponse(Message, flexible_from=5):
    """One answer per group asked for."""

    throttle_time_ms: int = int32("1+")
    groups: list[DescribedGroup] = array(DescribedGroup)
