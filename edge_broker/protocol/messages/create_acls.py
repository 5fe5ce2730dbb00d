"""CreateAcls (30): ACLs are added.

Declarations only. Source: Kafka's schemas, KIP-140, KIP-290.
"""

from __future__ import annotations

from edge_broker.protocol.message import Message, array
from edge_broker.protocol.messages.describe_acls import LITERAL
from edge_broker.protocol.scalars import int8, int16, int32, nullable_string, string


class AclCreation(Message):
    """One ACL."""

    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8("1+", default=LITERAL)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class CreateAclsRequest(Message, flexible_from=2):
    """Add these. Versions 1-3."""

    creations: list[AclCreation] = array(AclCreation)


class AclCreationResult(Message):
    """Whether one is there."""

    error_code: int = int16()
    error_message: str | None = nullable_string()


class CreateAclsResponse(Message, flexible_from=2):
    """One answer per ACL."""

    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)
