"""FindCoordinator (10): which broker looks after a group (key type 0) or a transactional id (1).

Declarations only. Source: Kafka's schemas, KIP-699 for many keys at once.
"""

from __future__ import annotations

from edge_broker.protocol.message import Message, array
from edge_broker.protocol.scalars import int8, int16, int32, nullable_string, string


class FindCoordinatorRequest(Message, flexible_from=3):
    """Who coordinates `key` (to version 3) or each of `coordinator_keys` (from 4)? Versions 0-6."""

    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = array(string, "4+")


class Coordinator(Message):
    """The broker for one key."""

    key: str = string("4+")
    node_id: int = int32("4+")
    host: str = string("4+")
    port: int = int32("4+")
    error_code: int = int16("4+")
    error_message: str | None = nullable_string("4+")


class FindCoordinatorResponse(Message, flexible_from=3):
    """One broker to version 3, one per key from 4."""

    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0-3")
    error_message: str | None = nullable_string("1-3")
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")
