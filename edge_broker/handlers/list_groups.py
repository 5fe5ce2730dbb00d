"""ListGroups (key 16). Source: Kafka protocol, ListGroups 0 to 5; KIP-518 (states), KIP-848 (types)."""

from __future__ import annotations

from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.outcomes import Reply, Taken, reads_in_steps
from edge_broker.coordinator.descriptions import list_groups as list_known
from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import LIST_GROUPS
from edge_broker.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from edge_broker.security.acls import Operation, ResourceType


@ServedApi(
    LIST_GROUPS,
    ListGroupsRequest,
    ListGroupsResponse,
    {
        0: "groups and their protocol types",
        1: "throttle time (KIP-124)",
        2: "throttled by the client (KIP-219)",
        3: "compact lengths, tags (KIP-482)",
        4: "states (KIP-518)",
        5: "types (KIP-848)",
    },
)
@reads_in_steps
def list_groups(broker: Broker, context: RequestContext, request: ListGroupsRequest) -> Taken:
    """Every group whose state and type were asked for, and that the session may describe."""
    error = broker.groups.any_unready()
    if error != ErrorCode.NONE:
        return Reply(ListGroupsResponse(error_code=error))
    groups: list[ListedGroup] = []
    all_shown = broker.rights.may(context, Operation.DESCRIBE, ResourceType.CLUSTER, noted=False)
    for coordinator in broker.groups.coordinators:
        for group in list_known(coordinator, request.states_filter, request.types_filter):
            if not all_shown and not broker.rights.may(
                context, Operation.DESCRIBE, ResourceType.GROUP, group.group_id, noted=False
            ):
                yield None
                continue
            groups.append(
                ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type,
                    group_state=group.state,
                    group_type=group.group_type,
                )
            )
            yield groups[-1]
    return Reply(ListGroupsResponse(groups=groups))
