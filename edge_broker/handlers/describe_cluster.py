"""DescribeCluster (key 60): the brokers that are there, and the controller. Source: KIP-700, KIP-919."""

from __future__ import annotations

from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.operations import leader_directory
from edge_broker.broker.outcomes import Outcome, Reply
from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import DESCRIBE_CLUSTER
from edge_broker.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS, CONTROLLERS = 1, 2


@ServedApi(
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
    """Cluster id, controller and brokers; controllers cannot be asked for, as brokers are their own."""
    if request.endpoint_type != BROKERS:
        message = "this cluster has no separate controllers; ask for brokers (endpoint type 1)"
        code = (
            ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if request.endpoint_type == CONTROLLERS
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        )
        return Reply(DescribeClusterResponse(error_code=code, error_message=message))
    return Reply(
        DescribeClusterResponse(
            cluster_id=broker.store.directory.cluster_id,
            controller_id=leader_directory.controller(broker),
            brokers=[
                DescribeClusterBroker(
                    broker_id=node.broker, host=node.endpoint.host, port=node.endpoint.port, rack=node.rack
                )
                for node in leader_directory.brokers(broker, context.session)
            ],
            cluster_authorized_operations=broker.rights.cluster_operations(
                context, told=request.include_cluster_authorized_operations
            ),
        )
    )
