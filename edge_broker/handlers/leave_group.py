"""LeaveGroup (key 13): members go, the rest must rebalance. Source: Kafka protocol, LeaveGroup 0 to 5;
KIP-345.
"""

from __future__ import annotations

from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.operations.groups.group_log import park
from edge_broker.broker.outcomes import Outcome, Reply
from edge_broker.coordinator.group_requests import Leave, Leaver, LeaveResult
from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import LEAVE_GROUP
from edge_broker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from edge_broker.security.acls import Operation

BATCHED_FROM = 3
LEAVERS_MAX = 2000  # in one request, twice as many as a group has by default


@ServedApi(
    LEAVE_GROUP,
    LeaveGroupRequest,
    LeaveGroupResponse,
    {
        0: "one member goes",
        1: "throttle time (KIP-124)",
        2: "throttled by the client (KIP-219)",
        3: "several members (KIP-345)",
        4: "compact lengths, tags (KIP-482)",
        5: "a reason (KIP-800)",
    },
)
def leave_group(broker: Broker, context: RequestContext, request: LeaveGroupRequest) -> Outcome:
    """Take the named members out of their group."""
    batched = context.api_version >= BATCHED_FROM
    error = broker.rights.group(context, request.group_id, Operation.READ) or broker.groups.unready(request.group_id)
    if error != ErrorCode.NONE:
        return Reply(LeaveGroupResponse(error_code=error))
    if len(request.members) > LEAVERS_MAX:
        return Reply(LeaveGroupResponse(error_code=ErrorCode.INVALID_REQUEST))
    members = (
        tuple(Leaver(member.member_id, member.group_instance_id) for member in request.members)
        if batched
        else (Leaver(request.member_id, None),)
    )
    effects = broker.groups.of(request.group_id).leave(
        Leave(token=context.token, group_id=request.group_id, members=members), broker.clock.steady_ms()
    )
    return park(broker, context, request.group_id, effects, lambda result: _response(batched, result))


def _response(batched: bool, result: LeaveResult) -> LeaveGroupResponse:
    if not batched:
        error = next((member.error for member in result.members if member.error), result.error)
        return LeaveGroupResponse(error_code=error)
    members = [
        MemberResponse(member_id=member.member_id, group_instance_id=member.instance_id, error_code=member.error)
        for member in result.members
    ]
    return LeaveGroupResponse(error_code=result.error, members=members)
