"""ListGroups (16): the groups this broker coordinates.

Declarations only. Source: Kafka's schemas, KIP-518 for states, KIP-848 for types.
"""

from __future__ import annotations

from edge_broker.protocol.message import Message, array
from edge_broker.protocol.scalars import int16, int32, string


class ListGroupsRequest(Message, flexible_from=3):
    """Which groups, of these states and types when given? Versions 0-5."""

    states_filter: list[str] = array(string, "4+")
    types_filter: list[str] = array(string, "5+")


class ListedGroup(Message):
    """One group."""

    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+")
    group_type: str = string("5+")


class ListGroupsResponse(Message, flexible_from=3):
    """The groups."""

    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
