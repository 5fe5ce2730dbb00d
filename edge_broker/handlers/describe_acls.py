"""DescribeAcls (key 29): the ACLs that a filter means, by what they are about.

Source: Kafka protocol, DescribeAcls 1 to 3; KIP-140, KIP-290 (MATCH: those that hold for a name).
"""

from __future__ import annotations

from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.operations.acl_changes import check_acl_rights, filter_of
from edge_broker.broker.outcomes import Reply, Taken, reads_in_steps
from edge_broker.errors import Refusal
from edge_broker.protocol.api import DESCRIBE_ACLS
from edge_broker.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from edge_broker.security.acls import AclBinding, Operation


@ServedApi(
    DESCRIBE_ACLS,
    DescribeAclsRequest,
    DescribeAclsResponse,
    {1: "pattern types (KIP-290)", 2: "compact lengths, tags (KIP-482)", 3: "users as resources (KIP-373)"},
)
@reads_in_steps
def describe_acls(broker: Broker, context: RequestContext, request: DescribeAclsRequest) -> Taken:
    """Those that were synced when the request came."""
    try:
        check_acl_rights(broker, context, Operation.DESCRIBE)
        meant = filter_of(request)
    except Refusal as refusal:
        return Reply(DescribeAclsResponse(error_code=refusal.code, error_message=refusal.message))
    authorizer = broker.rights.authorizer
    assert authorizer is not None
    resources: list[DescribeAclsResource] = []
    last: tuple[int, str, int] | None = None
    for acl in authorizer.acls.in_order:
        if not meant.matches(acl):
            yield None
            continue
        if acl[:3] != last:
            last = acl[:3]
            resources.append(_resource(acl))
        described = AclDescription(
            principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
        )
        resources[-1].acls.append(described)
        yield described
    return Reply(DescribeAclsResponse(resources=resources))


def _resource(acl: AclBinding) -> DescribeAclsResource:
    return DescribeAclsResource(
        resource_type=acl.resource_type, resource_name=acl.name, pattern_type=acl.pattern_type, acls=[]
    )
