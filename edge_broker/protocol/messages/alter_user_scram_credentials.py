"""AlterUserScramCredentials (51): SCRAM credentials are set and removed.

Declarations only. Source: Kafka's schemas, KIP-554.
"""

from __future__ import annotations

from edge_broker.protocol.message import Message, array
from edge_broker.protocol.scalars import bytes_, int8, int16, int32, nullable_string, string


class ScramCredentialDeletion(Message):
    """A user's credential for a mechanism goes."""

    name: str = string()
    mechanism: int = int8()


class ScramCredentialUpsertion(Message):
    """A user's credential for a mechanism is made of this salted password."""

    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = bytes_()
    salted_password: bytes = bytes_()


class AlterUserScramCredentialsRequest(Message, flexible_from=0):
    """Remove these and set those; each user at most once. Version 0."""

    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


class AlterUserScramCredentialsResult(Message):
    """The result for one user."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = nullable_string()


class AlterUserScramCredentialsResponse(Message, flexible_from=0):
    """One result per user."""

    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
