"""DescribeGroups (key 15). Source: Kafka protocol, DescribeGroups 0 to 6; KIP-1043 for GROUP_ID_NOT_FOUND."""

from __future__ import annotations

from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.outcomes import Reply, Taken, reads_in_steps
from edge_broker.coordinator import descriptions, group_requests
from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import DESCRIBE_GROUPS
from edge_broker.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from edge_broker.security.acls import Operation, ResourceType

MISSING_GROUP_FROM = 6


@ServedApi(
    DESCRIBE_GROUPS,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    {
        0: "state and members",
        1: "throttle time (KIP-124)",
        2: "throttled by the client (KIP-219)",
        3: "authorized operations (KIP-430)",
        4: "static members (KIP-345)",
        5: "compact lengths, tags (KIP-482)",
        6: "GROUP_ID_NOT_FOUND, an error message (KIP-1043)",
    },
)
@reads_in_steps
def describe_groups(broker: Broker, context: RequestContext, request: DescribeGroupsRequest) -> Taken:
    """State and members of each group."""
    knows = context.api_version >= MISSING_GROUP_FROM
    groups: list[DescribedGroup] = []
    for group_id in request.groups:
        error = broker.rights.group(context, group_id, Operation.DESCRIBE) or broker.groups.unready(group_id)
        if error != ErrorCode.NONE:
            groups.append(DescribedGroup(error_code=error, group_id=group_id))
        else:
            (found,) = descriptions.describe_groups(broker.groups.of(group_id), [group_id], knows_missing_group=knows)
            groups.append(_group(found))
            if request.include_authorized_operations and found.error == ErrorCode.NONE:
                groups[-1].authorized_operations = broker.rights.operations(context, ResourceType.GROUP, group_id)
        yield groups[-1]
    return Reply(DescribeGroupsResponse(groups=groups))


def _group(group: group_requests.DescribedGroup) -> DescribedGroup:
    members = [
        DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata,
            member_assignment=member.assignment,
        )
        for member in group.members
    ]
    return DescribedGroup(
        error_code=group.error,
        error_message=group.error_message,
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_name,
        members=members,
    )
