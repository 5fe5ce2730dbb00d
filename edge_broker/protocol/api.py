"""The table of APIs, and the headers around every request and response.

Lives here: which message belongs to which key, the versions of each, and the frames' outer bytes. Must never come in:
what an API does; whether the broker serves one is decided by the handlers that exist. Source: Kafka protocol guide,
KIP-482 for flexible headers, KIP-511 for ApiVersions.

    request frame  | api_key int16 | api_version int16 | correlation_id int32 | client_id nullable string | [tags] body
    response frame | size int32 | correlation_id int32 | [tags] body

Tags are there in flexible versions, except in the response to ApiVersions: its header is always the old one, as the
client does not yet know what the broker speaks.
"""

from __future__ import annotations

from struct import Struct, error
from typing import TYPE_CHECKING

from edge_broker.errors import ProtocolViolation
from edge_broker.protocol.codec import encode, encode_steps, skip_tags
from edge_broker.protocol.message import Message
from edge_broker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from edge_broker.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from edge_broker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from edge_broker.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from edge_broker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from edge_broker.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from edge_broker.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from edge_broker.protocol.messages.fetch import FetchRequest, FetchResponse
from edge_broker.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from edge_broker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from edge_broker.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from edge_broker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from edge_broker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from edge_broker.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from edge_broker.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from edge_broker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from edge_broker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from edge_broker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from edge_broker.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from edge_broker.protocol.messages.produce import ProduceRequest, ProduceResponse
from edge_broker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import Generator


class Api:
    """One API: its key and name, its two messages, and its versions.

    `min_version` to `max_version` are served; `advertised_min` is lower for Produce alone, where librdkafka before
    2.11.1 turns compression off unless version 0 is on offer (KAFKA-18659).
    """

    __slots__ = ("advertised_min", "flexible_from", "key", "max_version", "min_version", "name", "request", "response")

    def __init__(
        self, key: int, request: type[Message], response: type[Message], versions: range, *, advertised_min: int = -1
    ) -> None:
        self.key = key
        self.name = request.__name__.removesuffix("Request")
        self.request = request
        self.response = response
        self.min_version = versions[0]
        self.max_version = versions[-1]
        self.advertised_min = self.min_version if advertised_min < 0 else advertised_min
        self.flexible_from = request.FLEXIBLE_FROM

    def __repr__(self) -> str:
        return f"Api({self.name} {self.min_version}-{self.max_version})"

    def serves(self, version: int) -> bool:
        """Say whether requests of this version can be decoded and answered."""
        return self.min_version <= version <= self.max_version


PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 8, 9, 10
JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP, DESCRIBE_GROUPS, LIST_GROUPS = 11, 12, 13, 14, 15, 16
API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS, INIT_PRODUCER_ID = 18, 19, 20, 22
OFFSET_FOR_LEADER_EPOCH, DESCRIBE_CONFIGS, DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS = 23, 32, 60, 75


def _versions(first: int, last: int) -> range:
    return range(first, last + 1)


APIS: dict[int, Api] = {
    api.key: api
    for api in (
        Api(PRODUCE, ProduceRequest, ProduceResponse, _versions(3, 12), advertised_min=0),
        Api(FETCH, FetchRequest, FetchResponse, _versions(4, 17)),
        Api(LIST_OFFSETS, ListOffsetsRequest, ListOffsetsResponse, _versions(1, 10)),
        Api(METADATA, MetadataRequest, MetadataResponse, _versions(0, 13)),
        Api(OFFSET_COMMIT, OffsetCommitRequest, OffsetCommitResponse, _versions(0, 9)),
        Api(OFFSET_FETCH, OffsetFetchRequest, OffsetFetchResponse, _versions(1, 9)),
        Api(FIND_COORDINATOR, FindCoordinatorRequest, FindCoordinatorResponse, _versions(0, 6)),
        Api(JOIN_GROUP, JoinGroupRequest, JoinGroupResponse, _versions(0, 9)),
        Api(HEARTBEAT, HeartbeatRequest, HeartbeatResponse, _versions(0, 4)),
        Api(LEAVE_GROUP, LeaveGroupRequest, LeaveGroupResponse, _versions(0, 5)),
        Api(SYNC_GROUP, SyncGroupRequest, SyncGroupResponse, _versions(0, 5)),
        Api(DESCRIBE_GROUPS, DescribeGroupsRequest, DescribeGroupsResponse, _versions(0, 6)),
        Api(LIST_GROUPS, ListGroupsRequest, ListGroupsResponse, _versions(0, 5)),
        Api(API_VERSIONS, ApiVersionsRequest, ApiVersionsResponse, _versions(0, 4)),
        Api(CREATE_TOPICS, CreateTopicsRequest, CreateTopicsResponse, _versions(0, 7)),
        Api(DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicsResponse, _versions(0, 6)),
        Api(INIT_PRODUCER_ID, InitProducerIdRequest, InitProducerIdResponse, _versions(0, 5)),
        Api(OFFSET_FOR_LEADER_EPOCH, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, _versions(2, 4)),
        Api(DESCRIBE_CONFIGS, DescribeConfigsRequest, DescribeConfigsResponse, _versions(0, 4)),
        Api(DESCRIBE_CLUSTER, DescribeClusterRequest, DescribeClusterResponse, _versions(0, 2)),
        Api(
            DESCRIBE_TOPIC_PARTITIONS,
            DescribeTopicPartitionsRequest,
            DescribeTopicPartitionsResponse,
            _versions(0, 0),
        ),
    )
}


_REQUEST_HEADER = Struct(">hhih")
_SIZE_AND_ID = Struct(">ii").pack
_SIZE_ID_AND_NO_TAGS = Struct(">iiB").pack


def read_request_header(frame: memoryview) -> tuple[int, int, int, str | None, int]:
    """API key, API version, correlation id, client id, and where the body begins; ProtocolViolation when it has none.

    `frame` is the request without its size.

    Unknown keys and versions are the caller's to judge; of an unknown key no more than the client id is read.
    """
    try:
        api_key, api_version, correlation_id, length = _REQUEST_HEADER.unpack_from(frame)
        position = _REQUEST_HEADER.size
        client_id = None
        if length >= 0:
            client_id = str(frame[position : position + length], "utf-8")
            position += length
        api = APIS.get(api_key)
        if api is not None and api_version >= api.flexible_from:
            position = skip_tags(frame, position) if frame[position] else position + 1
    except (error, IndexError, UnicodeDecodeError) as reason:
        raise ProtocolViolation(f"A request of {len(frame)} bytes has no readable header: {reason}.") from reason
    if length < -1 or position > len(frame):
        raise ProtocolViolation(f"A request of {len(frame)} bytes has a client id or tags that end beyond it.")
    return api_key, api_version, correlation_id, client_id, position


def response_frame(api: Api, version: int, correlation_id: int, response: Message) -> list[bytes | memoryview]:
    """Write a response with its size and header in front, as parts to be sent one after the other."""
    return _framed(api, version, correlation_id, encode(response, version))


def response_frame_in_steps(
    api: Api, version: int, correlation_id: int, response: Message
) -> Generator[None, None, list[bytes | memoryview]]:
    """Write a response as `response_frame` does, in steps."""
    parts = yield from encode_steps(response, version)
    return _framed(api, version, correlation_id, parts)


def _framed(api: Api, version: int, correlation_id: int, parts: list[bytes | memoryview]) -> list[bytes | memoryview]:
    size = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
    if version < api.flexible_from or api.key == API_VERSIONS:
        header = _SIZE_AND_ID(size + 4, correlation_id)
    else:
        header = _SIZE_ID_AND_NO_TAGS(size + 5, correlation_id, 0)
    if not parts:
        return [header]
    parts[0] = header + parts[0]
    return parts
