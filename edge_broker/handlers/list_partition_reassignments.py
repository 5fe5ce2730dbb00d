"""ListPartitionReassignments (key 46): no partition is ever being moved; Kafka's tools ask before they do anything.

Source: Kafka protocol, ListPartitionReassignments 0; KIP-455.
"""

from __future__ import annotations

from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.outcomes import Outcome, Reply
from edge_broker.protocol.api import LIST_PARTITION_REASSIGNMENTS
from edge_broker.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from edge_broker.security.acls import Operation


@ServedApi(
    LIST_PARTITION_REASSIGNMENTS,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    {0: "what is being moved (KIP-455)"},
    left_out="there is never any: partitions stay where they were made",
)
def list_partition_reassignments(
    broker: Broker, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> Outcome:
    """Say that there is none, to whom may know."""
    code = broker.rights.cluster(context, Operation.DESCRIBE)
    text = f"{context.session.principal} has no right to DESCRIBE the cluster" if code else None
    return Reply(ListPartitionReassignmentsResponse(error_code=code, error_message=text))
