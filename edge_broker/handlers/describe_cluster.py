"""DescribeCluster (key 60): the one broker there is. Source: KIP-700, KIP-919."""

from __future__ import annotations

from edge_broker.broker.api import Served
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.outcome import Outcome, Reply
from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import DESCRIBE_CLUSTER
from edge_broker.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS, CONTROLLERS = 1, 2


@Served(
    DESCRIBE_CLUSTER,
    DescribeClusterRequest,
    DescribeClusterResponse,
    {
        0: "the brokers and the controller (KIP-700)",
        1: "controllers asked themselves (KIP-919)",
        2: "fenced brokers (KIP-1073)",
    },
    left_out="controllers as endpoints of their own",
)
def describe_cluster(broker: Broker, context: RequestContext, request: DescribeClusterRequest) -> Outcome:
    """Cluster id, controller and brokers; controllers cannot be asked for, as the broker is its own."""
    if request.endpoint_type != BROKERS:
        message = "this cluster has no separate controllers; ask for brokers (endpoint type 1)"
        code = (
            ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if request.endpoint_type == CONTROLLERS
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        )
        return Reply(DescribeClusterResponse(error_code=code, error_message=message))
    advertised = broker.advertised_to(context.session)
    node = DescribeClusterBroker(broker_id=broker.node_id, host=advertised.host, port=advertised.port)
    return Reply(
        DescribeClusterResponse(
            cluster_id=broker.store.cluster_id,
            controller_id=broker.node_id,
            brokers=[node],
            cluster_authorized_operations=broker.rights.cluster_operations(
                context, told=request.include_cluster_authorized_operations
            ),
        )
    )
