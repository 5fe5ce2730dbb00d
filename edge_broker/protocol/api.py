"""Declare an API, and the headers of every request and response.

Contains: keys, versions, and the frames' outer bytes. Does not contain: which APIs are served (broker/api.py).
Source: Kafka protocol guide, KIP-482 for flexible headers, KIP-511 for ApiVersions.

    request frame  | api_key int16 | api_version int16 | correlation_id int32 | client_id nullable string | [tags] body
    response frame | size int32 | correlation_id int32 | [tags] body

Tags are there in flexible versions, except in the response to ApiVersions: its header is always the old one, as the
client does not yet know what the broker speaks.
"""

from __future__ import annotations

from struct import Struct, error
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from edge_broker.errors import ProtocolViolation
from edge_broker.protocol.codec import encode, encode_steps, skip_tags
from edge_broker.protocol.message import Message

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping


class Api:
    """One API: its key and name, its two messages, and its versions: what each has brought, and what is left out.

    `min_version` to `max_version` are served, none left out; `advertised_min` is lower for Produce alone, where
    librdkafka before 2.11.1 turns compression off unless version 0 is on offer (KAFKA-18659).
    """

    __slots__ = (
        "advertised_min",
        "flexible_from",
        "key",
        "left_out",
        "max_version",
        "min_version",
        "name",
        "request",
        "response",
        "versions",
    )

    def __init__(
        self,
        key: int,
        request: type[Message],
        response: type[Message],
        versions: Mapping[int, str],
        *,
        advertised_min: int = -1,
        left_out: str = "",
    ) -> None:
        self.key = key
        self.name = request.__name__.removesuffix("Request")
        self.request = request
        self.response = response
        self.versions = versions
        self.left_out = left_out
        self.min_version = min(versions)
        self.max_version = max(versions)
        assert len(versions) == self.max_version - self.min_version + 1, f"{self.name}: a version is missing"
        self.advertised_min = self.min_version if advertised_min < 0 else advertised_min
        self.flexible_from = request.FLEXIBLE_FROM

    def __repr__(self) -> str:
        return f"Api({self.name} {self.min_version}-{self.max_version})"

    def serves(self, version: int) -> bool:
        """Say whether requests of this version can be decoded and answered."""
        return self.min_version <= version <= self.max_version


R = TypeVar("R", bound=Message)


class RequestedApi(NamedTuple, Generic[R]):
    """An API as a client asks it; `response` is the type of its answer."""

    api: Api
    response: type[R]


def requested_api(key: int, request: type[Message], response: type[R], first: int, last: int) -> RequestedApi[R]:
    """An API by its key and messages, asked in the versions `first` to `last`."""
    return RequestedApi(Api(key, request, response, dict.fromkeys(range(first, last + 1), "")), response)


PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 8, 9, 10
JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP, DESCRIBE_GROUPS, LIST_GROUPS = 11, 12, 13, 14, 15, 16
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
DESCRIBE_CLIENT_QUOTAS, DESCRIBE_USER_SCRAM_CREDENTIALS, ALTER_USER_SCRAM_CREDENTIALS = 48, 50, 51
API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, INIT_PRODUCER_ID = 18, 19, 20, 21, 22
OFFSET_FOR_LEADER_EPOCH, DESCRIBE_CONFIGS, DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS = 23, 32, 60, 75
DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS, DESCRIBE_LOG_DIRS = 29, 30, 31, 35
ADD_PARTITIONS_TO_TXN, END_TXN, DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS = 24, 26, 61, 65  # asked of others alone
ALTER_CONFIGS, CREATE_PARTITIONS, DELETE_GROUPS, INCREMENTAL_ALTER_CONFIGS, OFFSET_DELETE = 33, 37, 42, 44, 47
ELECT_LEADERS, ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS = 43, 45, 46

_REQUEST_HEADER = Struct(">hhih")
_SIZE_AND_ID = Struct(">ii").pack
_SIZE_ID_AND_NO_TAGS = Struct(">iiB").pack


def read_request_header(frame: memoryview, apis: Mapping[int, Api]) -> tuple[int, int, int, str | None, int]:
    """API key, API version, correlation id, client id, and where the body begins; ProtocolViolation when it has none.

    `frame` is the request without its size. Versions are the caller's to judge; of a key that is not in `apis` no more
    than the client id is read.
    """
    try:
        api_key, api_version, correlation_id, length = _REQUEST_HEADER.unpack_from(frame)
        position = _REQUEST_HEADER.size
        client_id = None
        if length >= 0:
            client_id = str(frame[position : position + length], "utf-8")
            position += length
        api = apis.get(api_key)
        if api is not None and api_version >= api.flexible_from:
            position = skip_tags(frame, position) if frame[position] else position + 1
    except (error, IndexError, UnicodeDecodeError) as reason:
        raise ProtocolViolation(f"A request of {len(frame)} bytes has no readable header: {reason}.") from reason
    if length < -1 or position > len(frame):
        raise ProtocolViolation(f"A request of {len(frame)} bytes has a client id or tags that end beyond it.")
    return api_key, api_version, correlation_id, client_id, position


def response_frame(api: Api, version: int, correlation_id: int, response: Message) -> list[bytes | memoryview]:
    """Write a response with its size and header in front, as parts to be sent one after the other."""
    return _frame(api, version, correlation_id, encode(response, version))


def response_frame_in_steps(
    api: Api, version: int, correlation_id: int, response: Message
) -> Generator[None, None, list[bytes | memoryview]]:
    """Write a response as `response_frame` does, in steps."""
    parts = yield from encode_steps(response, version)
    return _frame(api, version, correlation_id, parts)


def _frame(api: Api, version: int, correlation_id: int, parts: list[bytes | memoryview]) -> list[bytes | memoryview]:
    size = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
    if version < api.flexible_from or api.key == API_VERSIONS:
        header = _SIZE_AND_ID(size + 4, correlation_id)
    else:
        header = _SIZE_ID_AND_NO_TAGS(size + 5, correlation_id, 0)
    if not parts:
        return [header]
    parts[0] = header + parts[0]
    return parts
