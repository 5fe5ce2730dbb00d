"""DescribeUserScramCredentials (50): who can log in by which SCRAM mechanism.

Declarations only. Source: Kafka's schemas, KIP-554.
"""

from __future__ import annotations

from edge_broker.protocol.message import Message, array, nullable_array
from edge_broker.protocol.scalars import int8, int16, int32, nullable_string, string


class UserName(Message):
    """A user."""

    name: str = string()


class DescribeUserScramCredentialsRequest(Message, flexible_from=0):
    """Describe these users, null or none for all. Version 0."""

    users: list[UserName] | None = nullable_array(UserName)


class CredentialInfo(Message):
    """A mechanism by its number, and the iterations of its credential."""

    mechanism: int = int8()
    iterations: int = int32()


class DescribeUserScramCredentialsResult(Message):
    """The credentials of one user."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


class DescribeUserScramCredentialsResponse(Message, flexible_from=0):
    """One result per user."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
