"""SaslHandshake (17): by which mechanism a client is about to log in.

Declarations only. Source: Kafka's schemas, KIP-43, KIP-152.
"""

from __future__ import annotations

from edge_broker.protocol.message import Message, array
from edge_broker.protocol.scalars import int16, string


class SaslHandshakeRequest(Message):
    """I log in by this mechanism. Versions 0-1; after version 0 the tokens come without a request around them."""

    mechanism: str = string()


class SaslHandshakeResponse(Message):
    """Whether that can be, and which mechanisms there are."""

    error_code: int = int16()
    mechanisms: list[str] = array(string)
