"""EndTxn (26): commit or abort; answered when the coordinator has it on disk, before the markers are written.

Declarations only. Source: Kafka's schemas, KIP-98; version 5, which raises the epoch (KIP-890), is not declared.
"""

from __future__ import annotations

from edge_broker.protocol.message import Message
from edge_broker.protocol.scalars import boolean, int16, int32, int64, string


class EndTxnRequest(Message, flexible_from=3):
    """End it. Versions 0-4."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


class EndTxnResponse(Message, flexible_from=3):
    """NONE also for the same end told again, once all markers are written; CONCURRENT_TRANSACTIONS before."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
