"""DeleteGroups (42): empty groups go, with what they committed.

Declarations only. Source: Kafka's schemas, KIP-229.
"""

from __future__ import annotations

from edge_broker.protocol.message import Message, array
from edge_broker.protocol.scalars import int16, int32, string


class DeleteGroupsRequest(Message, flexible_from=2):
    """Delete these groups. Versions 0-2."""

    groups_names: list[str] = array(string)


class DeletableGroupResult(Message):
    """Whether one group is deleted."""

    group_id: str = string()
    error_code: int = int16()


class DeleteGroupsResponse(Message, flexible_from=2):
    """One answer per group."""

    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
