"""JoinGroup (key 11): answered when the group has a new generation, or at once with what is wrong.

Source: Kafka protocol, JoinGroup 0 to 9; KIP-394 (member id first), KIP-345 (static members), KIP-814.
"""

from __future__ import annotations

from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.operations.groups.group_log import park
from edge_broker.broker.outcomes import Outcome, Reply
from edge_broker.coordinator.group_requests import Join, JoinResult, Protocol
from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import JOIN_GROUP
from edge_broker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from edge_broker.security.acls import Operation

MEMBER_ID_REQUIRED_FROM = 4
NULL_PROTOCOL_FROM = 7
SKIP_ASSIGNMENT_FROM = 9
PROTOCOLS_MAX = 100  # of one member; clients have one or two


@ServedApi(
    JOIN_GROUP,
    JoinGroupRequest,
    JoinGroupResponse,
    {
        0: "a group's members",
        1: "a timeout of the rebalance (KIP-62)",
        2: "throttle time (KIP-124)",
        3: "throttled by the client (KIP-219)",
        4: "MEMBER_ID_REQUIRED (KIP-394)",
        5: "static members (KIP-345)",
        6: "compact lengths, tags (KIP-482)",
        7: "the protocol's type in the answer (KIP-559)",
        8: "a reason (KIP-800)",
        9: "a leader that skips the assignment (KIP-814)",
    },
)
def join_group(broker: Broker, context: RequestContext, request: JoinGroupRequest) -> Outcome:
    """Join, and wait for the others."""
    version = context.api_version
    denied = broker.rights.group(context, request.group_id, Operation.READ)
    if denied != ErrorCode.NONE:
        return Reply(_response(version, JoinResult(denied, "")))
    error = broker.groups.unready(request.group_id)
    if error != ErrorCode.NONE:
        return Reply(_response(version, JoinResult(error, request.member_id)))
    if len(request.protocols) > PROTOCOLS_MAX:
        return Reply(_response(version, JoinResult(ErrorCode.INVALID_REQUEST, request.member_id)))
    join = Join(
        token=context.token,
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=context.client_id,
        client_host="/" + context.session.host,
        peer=context.session.peer,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple(Protocol(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
        member_id_required=version >= MEMBER_ID_REQUIRED_FROM,
        can_skip_assignment=version >= SKIP_ASSIGNMENT_FROM,
    )
    coordinator = broker.groups.of(request.group_id)
    effects = coordinator.join(join, unique_id=broker.clock.new_token(), now_ms=broker.clock.steady_ms())
    return park(broker, context, request.group_id, effects, lambda result: _response(version, result))


def _response(version: int, result: JoinResult) -> JoinGroupResponse:
    members = [
        JoinGroupResponseMember(
            member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
        )
        for member in result.members
    ]
    protocol_name = result.protocol_name if version >= NULL_PROTOCOL_FROM else result.protocol_name or ""
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name=protocol_name,
        leader=result.leader_id,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=members,
    )
