"""What we write is byte for byte what kafka-python writes, and what it writes we read: every API, version and field.

kafka-python's codec is another implementation of Kafka's schemas. Two fields it no longer knows are held against its
older codec at the end.
"""

from __future__ import annotations

import importlib
import random
from typing import Any

import pytest
from kafka.protocol.old.admin import DescribeConfigsResponse_v0
from kafka.protocol.old.commit import OffsetCommitRequest_v1

from edge_broker.handlers import APIS
from edge_broker.protocol.api import Api, read_request_header, response_frame
from edge_broker.protocol.codec import decode, encode
from edge_broker.protocol.message import Message, MessageType
from edge_broker.protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from edge_broker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.support.messages import random_message

ROUNDS = 5
FORGOTTEN = {("OffsetCommitRequest", 1), ("DescribeConfigsResponse", 0)}
MODULES = ("admin", "consumer", "metadata", "producer", "sasl")


def _peer(message_type: type[Message]) -> Any:
    for module in MODULES:
        found = getattr(importlib.import_module(f"kafka.protocol.{module}"), message_type.__name__, None)
        if found is not None:
            return found
    raise AssertionError(f"kafka-python has no {message_type.__name__}")


def _theirs(container: Any, message: Message, version: int) -> Any:
    """Return kafka-python's object with the values of ours, tagged fields only where they are sent."""
    values = {}
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if version not in field.versions or (field.tag is not None and value == field.default):
            continue
        if field.name.endswith("_operations") and "authorized_operations" in container._struct.fields:
            values["authorized_operations"] = {bit for bit in range(32) if value >> bit & 1}  # its own name and form
            continue
        inner = container._struct.fields[field.name]
        if isinstance(field.of, MessageType) and value is not None:
            is_array = field.kind == "array"
            made = [_theirs(inner.data_class, item, version) for item in (value if is_array else [value])]
            value = made if is_array else made[0]
        values[field.name] = value
    return container(version=version, **values)


CASES = [
    pytest.param(message_type, version, id=f"{message_type.__name__}-{version}")
    for api in APIS.values()
    for message_type in (api.request, api.response)
    for version in range(api.min_version, api.max_version + 1)
    if (message_type.__name__, version) not in FORGOTTEN
]


@pytest.mark.parametrize(("message_type", "version"), CASES)
def test_bytes_agree(message_type: type[Message], version: int) -> None:
    peer = _peer(message_type)
    rnd = random.Random(version)
    for _ in range(ROUNDS):
        message = random_message(message_type, version, rnd, own=False)
        theirs = bytes(_theirs(peer, message, version).encode(version=version))
        assert b"".join(encode(message, version)) == theirs
        assert decode(message_type, version, memoryview(theirs)) == message


def _api_versions() -> list[Any]:
    return [
        pytest.param(api, version, id=f"{api.name}-{version}")
        for api in APIS.values()
        for version in {api.min_version, api.flexible_from, api.max_version}
        if version <= api.max_version
    ]


@pytest.mark.parametrize(("api", "version"), _api_versions())
def test_frames_agree(api: Api, version: int) -> None:
    """Headers too: kafka-python's request is ours to read, our response is kafka-python's."""
    rnd = random.Random(version)
    request = random_message(api.request, version, rnd, own=False)
    theirs = _theirs(_peer(api.request), request, version)
    theirs.with_header(correlation_id=77, client_id="grüße")
    frame = memoryview(bytes(theirs.encode(version=version, header=True)))
    *header, position = read_request_header(frame, APIS)
    assert header == [api.key, version, 77, "grüße"]
    assert decode(api.request, version, frame, position) == request

    response = random_message(api.response, version, rnd, own=False)
    expected = _theirs(_peer(api.response), response, version)
    expected.with_header(correlation_id=78)
    sent = b"".join(response_frame(api, version, 78, response))
    assert sent == bytes(expected.encode(header=True, framed=True))


def test_offset_commit_version_1_has_a_timestamp() -> None:
    theirs = OffsetCommitRequest_v1("group", 3, "member", [("topic", [(0, 7, 1234, "note"), (1, 8, -1, "")])])
    ours = OffsetCommitRequest(
        group_id="group",
        generation_id_or_member_epoch=3,
        member_id="member",
        topics=[
            OffsetCommitRequestTopic(
                name="topic",
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=7, commit_timestamp=1234, committed_metadata="note"
                    ),
                    OffsetCommitRequestPartition(partition_index=1, committed_offset=8),
                ],
            )
        ],
    )
    assert b"".join(encode(ours, 1)) == theirs.encode()
    assert decode(OffsetCommitRequest, 1, memoryview(theirs.encode())) == ours


def test_describe_configs_version_0_says_whether_a_value_is_the_default() -> None:
    theirs = DescribeConfigsResponse_v0(0, [(0, None, 2, "topic", [("cleanup.policy", "delete", False, True, False)])])
    ours = DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_message=None,
                resource_type=2,
                resource_name="topic",
                configs=[DescribeConfigsResourceResult(name="cleanup.policy", value="delete", is_default=True)],
            )
        ]
    )
    assert b"".join(encode(ours, 0)) == theirs.encode()
    assert decode(DescribeConfigsResponse, 0, memoryview(theirs.encode())) == ours
