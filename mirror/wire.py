"""Requests that aiokafka lacks, or has without leader epochs and topic ids, over aiokafka's own connections.

Lives here: how a message of `edge_broker.protocol` looks to an aiokafka connection. Must never come in: what is asked,
and what an answer means. Source: KIP-320 for leader epochs, KIP-516 for topic ids.

| API                  | versions | for                                                      |
|----------------------|----------|----------------------------------------------------------|
| Metadata             | 1 to 12  | leader epochs from 7, topic ids from 10                  |
| OffsetCommit         | 2 to 8   | leader epochs from 6                                     |
| OffsetFetch          | 2 to 7   | from 2 an error of the whole group is told               |
| OffsetForLeaderEpoch | 2 to 4   | the leader epoch that the asker knows                    |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Generic, TypeVar

from aiokafka.client import ConnectionGroup
from aiokafka.errors import IncompatibleBrokerVersion, for_code
from aiokafka.protocol.api import RequestHeader_v1, RequestHeader_v2, ResponseHeader_v0, ResponseHeader_v1

from edge_broker.protocol.codec import decode, encode
from edge_broker.protocol.message import Message
from edge_broker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from edge_broker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from edge_broker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from edge_broker.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH = 74, 75
_NAMES = {FENCED_LEADER_EPOCH: "FencedLeaderEpoch", UNKNOWN_LEADER_EPOCH: "UnknownLeaderEpoch"}  # aiokafka has none

R = TypeVar("R", bound=Message)


@dataclass(frozen=True, slots=True)
class Api(Generic[R]):
    """One API: its key, its two messages and the versions that may be asked for."""

    key: int
    request: type[Message]
    response: type[R]
    first_version: int
    last_version: int


METADATA = Api(3, MetadataRequest, MetadataResponse, 1, 12)
OFFSET_COMMIT = Api(8, OffsetCommitRequest, OffsetCommitResponse, 2, 8)
OFFSET_FETCH = Api(9, OffsetFetchRequest, OffsetFetchResponse, 2, 7)
OFFSET_FOR_LEADER_EPOCH = Api(23, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, 2, 4)


async def ask(
    client: Any, node: int, api: Api[R], message: Message, *, group: ConnectionGroup = ConnectionGroup.DEFAULT
) -> R:
    """Send a request to a node through an AIOKafkaClient and return the answer, in the newest version both speak.

    Raises what the client raises, IncompatibleBrokerVersion when there is no such version.
    """
    answer: R = await client.send(node, _Request(api, message), group=group)
    return answer


def error_name(code: int) -> str:
    """Return the name of a Kafka error code, for people."""
    name: str = _NAMES.get(code) or for_code(code).__name__
    return name


class _Request:
    """What `AIOKafkaClient.send` takes: it makes the bytes once the broker's versions are known."""

    def __init__(self, api: Api[Any], message: Message) -> None:
        assert type(message) is api.request
        self._api, self._message = api, message

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> _Struct:
        first, last = versions.get(self._api.key, (0, -1))
        version = min(last, self._api.last_version)
        if version < max(first, self._api.first_version):
            raise IncompatibleBrokerVersion(f"{self._api.request.__name__}: the broker has versions {first} to {last}")
        return _Struct(self._api, self._message, version)


class _Struct:
    """What an aiokafka connection writes, and asks how the answer is read; the names are aiokafka's."""

    def __init__(self, api: Api[Any], message: Message, version: int) -> None:
        self.API_KEY, self.API_VERSION = api.key, version
        self.RESPONSE_TYPE = self
        self._api, self._message = api, message
        self._flexible = version >= api.request.FLEXIBLE_FROM

    def build_request_header(self, correlation_id: int, client_id: str) -> Any:
        header: Any = RequestHeader_v2 if self._flexible else RequestHeader_v1
        return header(self, correlation_id=correlation_id, client_id=client_id)

    def encode(self) -> bytes:
        return b"".join(encode(self._message, self.API_VERSION))

    def parse_response_header(self, frame: BytesIO) -> Any:
        return (ResponseHeader_v1 if self._flexible else ResponseHeader_v0).decode(frame)

    def decode(self, frame: BytesIO) -> Message:
        response: Message = decode(self._api.response, self.API_VERSION, memoryview(frame.read()))
        return response
