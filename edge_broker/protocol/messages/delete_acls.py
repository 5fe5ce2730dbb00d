"""DeleteAcls (31): the ACLs that filters mean are removed.

Declarations only. Source: Kafka's schemas, KIP-140, KIP-290.
"""

from __future__ import annotations

from edge_broker.protocol.message import Message, array
from edge_broker.protocol.messages.describe_acls import LITERAL
from edge_broker.protocol.scalars import int8, int16, int32, nullable_string, string


class DeleteAclsFilter(Message):
    """Which ACLs go; null and ANY (1) mean all."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = nullable_string()
    pattern_type_filter: int = int8("1+", default=LITERAL)
    principal_filter: str | None = nullable_string()
    host_filter: str | None = nullable_string()
    operation: int = int8()
    permission_type: int = int8()


class DeleteAclsRequest(Message, flexible_from=2):
    """Remove those that one of these means. Versions 1-3."""

    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)


class DeleteAclsMatchingAcl(Message):
    """One ACL that was removed."""

    error_code: int = int16()
    error_message: str | None = nullable_string()
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8("1+", default=LITERAL)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class DeleteAclsFilterResult(Message):
    """The ACLs that one filter matched."""

    error_code: int = int16()
    error_message: str | None = nullable_string()
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)


class DeleteAclsResponse(Message, flexible_from=2):
    """One answer per filter."""

    throttle_time_ms: int = int32()
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)
