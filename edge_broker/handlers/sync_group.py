"""SyncGroup (key 14): the leader hands in the assignments, every member gets its own.

Source: Kafka protocol, SyncGroup 0 to 5; KIP-559 for protocol type and name.
"""

from __future__ import annotations

from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.operations.groups.group_log import park
from edge_broker.broker.outcomes import Outcome, Reply
from edge_broker.coordinator.group_requests import Sync, SyncResult
from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import SYNC_GROUP
from edge_broker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from edge_broker.security.acls import Operation

PROTOCOL_FROM = 5
ASSIGNMENTS_MAX = 2000  # in one request, or twice as many as a group may have


@ServedApi(
    SYNC_GROUP,
    SyncGroupRequest,
    SyncGroupResponse,
    {
        0: "the leader's assignment to all",
        1: "throttle time (KIP-124)",
        2: "throttled by the client (KIP-219)",
        3: "static members (KIP-345)",
        4: "compact lengths, tags (KIP-482)",
        5: "the protocol's type and name (KIP-559)",
    },
)
def sync_group(broker: Broker, context: RequestContext, request: SyncGroupRequest) -> Outcome:
    """Wait for the leader's assignments and their sync.

    2,000 take 1 ms of the loop in one slice; as many as fit into a request took 22 ms.
    """
    if context.api_version >= PROTOCOL_FROM and None in (request.protocol_type, request.protocol_name):
        return Reply(_response(SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)))
    error = broker.rights.group(context, request.group_id, Operation.READ) or broker.groups.unready(request.group_id)
    if error != ErrorCode.NONE:
        return Reply(_response(SyncResult(error)))
    if len(request.assignments) > max(ASSIGNMENTS_MAX, 2 * broker.config.integer("group.max.size")):
        return Reply(_response(SyncResult(ErrorCode.INVALID_REQUEST)))
    sync = Sync(
        token=context.token,
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=tuple((entry.member_id, bytes(entry.assignment)) for entry in request.assignments),
    )
    effects = broker.groups.of(request.group_id).sync(sync, broker.clock.steady_ms())
    return park(broker, context, request.group_id, effects, _response)


def _response(result: SyncResult) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
