"""DescribeAcls (29): the ACLs that a filter means.

Declarations only. Source: Kafka's schemas, KIP-140, KIP-290.
"""

from __future__ import annotations

from edge_broker.protocol.message import Message, array
from edge_broker.protocol.scalars import int8, int16, int32, nullable_string, string

LITERAL = 3


class DescribeAclsRequest(Message, flexible_from=2):
    """Which ACLs are there? Versions 1-3; null and ANY (1) mean all."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = nullable_string()
    pattern_type_filter: int = int8("1+", default=LITERAL)
    principal_filter: str | None = nullable_string()
    host_filter: str | None = nullable_string()
    operation: int = int8()
    permission_type: int = int8()


class AclDescription(Message):
    """One ACL of a resource."""

    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class DescribeAclsResource(Message):
    """The ACLs of one pattern."""

    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8("1+", default=LITERAL)
    acls: list[AclDescription] = array(AclDescription)


class DescribeAclsResponse(Message, flexible_from=2):
    """The ACLs by what they are about."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)
