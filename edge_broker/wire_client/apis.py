"""Which APIs are asked, and in which versions: those that this broker and Apache Kafka 4 both serve.

Contains: one line per API. Does not contain: sockets; what the broker serves (handlers/); an API that writes.
"""

from __future__ import annotations

from edge_broker.protocol import api
from edge_broker.protocol.api import requested_api
from edge_broker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from edge_broker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from edge_broker.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from edge_broker.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from edge_broker.protocol.messages.fetch import FetchRequest, FetchResponse
from edge_broker.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from edge_broker.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from edge_broker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from edge_broker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

API_VERSIONS = requested_api(api.API_VERSIONS, ApiVersionsRequest, ApiVersionsResponse, 0, 0)
# From 4 on no topic is created by the request.
METADATA = requested_api(api.METADATA, MetadataRequest, MetadataResponse, 4, 12)
LIST_OFFSETS = requested_api(api.LIST_OFFSETS, ListOffsetsRequest, ListOffsetsResponse, 1, 7)
FETCH = requested_api(api.FETCH, FetchRequest, FetchResponse, 4, 12)  # from 13 on topics have ids instead of names
DESCRIBE_CONFIGS = requested_api(api.DESCRIBE_CONFIGS, DescribeConfigsRequest, DescribeConfigsResponse, 1, 4)
DESCRIBE_LOG_DIRS = requested_api(api.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest, DescribeLogDirsResponse, 1, 4)
LIST_GROUPS = requested_api(api.LIST_GROUPS, ListGroupsRequest, ListGroupsResponse, 0, 5)
DESCRIBE_GROUPS = requested_api(api.DESCRIBE_GROUPS, DescribeGroupsRequest, DescribeGroupsResponse, 0, 5)
OFFSET_FETCH = requested_api(api.OFFSET_FETCH, OffsetFetchRequest, OffsetFetchResponse, 8, 9)
FETCH = requested_api(api.FETCH, FetchRequest, FetchResponse, 4, 12)  # from 13 on topics have ids instead of names

ALL = (METADATA, LIST_OFFSETS, FETCH, DESCRIBE_CONFIGS, DESCRIBE_LOG_DIRS, LIST_GROUPS, DESCRIBE_GROUPS, OFFSET_FETCH)
