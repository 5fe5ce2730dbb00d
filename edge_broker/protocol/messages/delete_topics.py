"""DeleteTopics (20): remove topics by name or, from version 6, by id.

Declarations only. Source: Kafka's schemas, KIP-516.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_broker.protocol.message import Message, array
from edge_broker.protocol.scalars import int16, int32, nullable_string, string, uuid_

if TYPE_CHECKING:
    from uuid import UUID


class DeleteTopicState(Message):
    """A topic to remove, by name or, with a null name, by id."""

    name: str | None = nullable_string("6+", default=None)
    topic_id: UUID = uuid_("6+")


class DeleteTopicsRequest(Message, flexible_from=4):
    """Remove these. Versions 0-6."""

    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(string, "0-5")
    timeout_ms: int = int32()


class DeletableTopicResult(Message):
    """Whether one topic was removed."""

    name: str | None = nullable_string(nullable="6+")
    topic_id: UUID = uuid_("6+")
    error_code: int = int16()
    error_message: str | None = nullable_string("5+", default=None)


class DeleteTopicsResponse(Message, flexible_from=4):
    """One answer per topic asked for."""

    throttle_time_ms: int = int32("1+")
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
