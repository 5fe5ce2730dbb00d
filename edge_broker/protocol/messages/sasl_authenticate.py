"""SaslAuthenticate (36): one message of a mechanism, and the answer to it.

Declarations only. Source: Kafka's schemas, KIP-152, KIP-368 for the session's lifetime.
"""

from __future__ import annotations

from edge_broker.protocol.message import Message
from edge_broker.protocol.scalars import bytes_, int16, int64, nullable_string


class SaslAuthenticateRequest(Message, flexible_from=2):
    """The mechanism's next message. Versions 0-2."""

    auth_bytes: bytes = bytes_()


class SaslAuthenticateResponse(Message, flexible_from=2):
    """The mechanism's answer; after the last one how long until the client must log in again, 0 for never."""

    error_code: int = int16()
    error_message: str | None = nullable_string()
    auth_bytes: bytes = bytes_()
    session_lifetime_ms: int = int64("1+")
