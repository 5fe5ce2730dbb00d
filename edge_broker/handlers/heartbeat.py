"""Heartbeat (key 12): a member lives, and learns of a rebalance. Source: Kafka protocol, Heartbeat 0 to 4."""

from __future__ import annotations

from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.outcomes import Outcome, Reply
from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import HEARTBEAT
from edge_broker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from edge_broker.security.acls import Operation


@ServedApi(
    HEARTBEAT,
    HeartbeatRequest,
    HeartbeatResponse,
    {
        0: "a member lives",
        1: "throttle time (KIP-124)",
        2: "throttled by the client (KIP-219)",
        3: "static members (KIP-345)",
        4: "compact lengths, tags (KIP-482)",
    },
)
def heartbeat(broker: Broker, context: RequestContext, request: HeartbeatRequest) -> Outcome:
    """Keep the member's session alive."""
    error = broker.rights.group(context, request.group_id, Operation.READ) or broker.groups.unready(request.group_id)
    if error == ErrorCode.NONE:
        error = broker.groups.of(request.group_id).heartbeat(
            request.group_id,
            request.generation_id,
            request.member_id,
            request.group_instance_id,
            broker.clock.steady_ms(),
            peer=context.session.peer,
        )
    elif error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        error = ErrorCode.NONE  # as Kafka does: the member is believed until its group is loaded
    return Reply(HeartbeatResponse(error_code=error))
