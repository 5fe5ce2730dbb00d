"""Heartbeat (12): a member is alive; the answer tells it when the group rebalances.

Declarations only. Source: Kafka's schemas.
"""

from __future__ import annotations

from edge_broker.protocol.message import Message
from edge_broker.protocol.scalars import int16, int32, nullable_string, string


class HeartbeatRequest(Message, flexible_from=4):
    """I am still here. Versions 0-4."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = nullable_string("3+", default=None)


class HeartbeatResponse(Message, flexible_from=4):
    """NONE, or what the member has to do."""

    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
