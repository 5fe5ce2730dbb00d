"""ACLs as requests and answers have them, for tests that make and read them over the wire.

Must never come in: who asks, and which ACLs a test wants.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from edge_broker.protocol.messages.create_acls import AclCreation
from edge_broker.security.acls import AclBinding, Operation, PatternType, Permission, ResourceType

ANY_AT_ALL = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
"""A filter that every ACL passes."""


def creation(acl: AclBinding) -> AclCreation:
    """An ACL as CreateAcls wants it."""
    return AclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.name,
        resource_pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def described(resources: Iterable[Any]) -> set[AclBinding]:
    """The ACLs of an answer to DescribeAcls."""
    return {
        AclBinding(
            ResourceType(resource.resource_type),
            resource.resource_name,
            PatternType(resource.pattern_type),
            acl.principal,
            acl.host,
            Operation(acl.operation),
            Permission(acl.permission_type),
        )
        for resource in resources
        for acl in resource.acls
    }
