"""InitProducerId (22): an id and epoch for an idempotent or transactional producer.

Declarations only. Source: Kafka's schemas, KIP-98, KIP-360 for raising the epoch.
"""

from __future__ import annotations

from edge_broker.protocol.message import Message
from edge_broker.protocol.scalars import int16, int32, int64, nullable_string


class InitProducerIdRequest(Message, flexible_from=2):
    """Give me an id. Versions 0-5; a null transactional id asks for idempotence alone."""

    transactional_id: str | None = nullable_string()
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)


class InitProducerIdResponse(Message, flexible_from=2):
    """The id, never given twice, and its epoch."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
