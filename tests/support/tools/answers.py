"""Responses of a broker as the tools read them."""

from __future__ import annotations

from edge_broker.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from edge_broker.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def configs_answer(request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    entry = DescribeConfigsResourceResult(name="retention.ms", value="604800000", config_source=5)
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(resource_type=2, resource_name=one.resource_name, configs=[entry])
            for one in request.resources
        ]
    )


def sizes_answer(_request: object) -> DescribeLogDirsResponse:
    partition = DescribeLogDirsPartition(partition_size=5_000_000)
    topic = DescribeLogDirsTopic(name="t4", partitions=[partition])
    return DescribeLogDirsResponse(results=[DescribeLogDirsResult(log_dir="/d", topics=[topic])])
