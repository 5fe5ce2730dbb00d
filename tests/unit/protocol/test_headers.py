"""Headers, the table of APIs and the codec's edges, byte by byte."""

from __future__ import annotations

import subprocess
import sys
from uuid import UUID

import pytest

from edge_broker.broker.outcomes import run_steps
from edge_broker.errors import ProtocolViolation
from edge_broker.handlers import APIS
from edge_broker.protocol.api import API_VERSIONS, FETCH, METADATA, PRODUCE, read_request_header, response_frame
from edge_broker.protocol.codec import decode, encode, encode_steps, read_uvarint, uvarint
from edge_broker.protocol.message import Message, array, nullable_array
from edge_broker.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from edge_broker.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from edge_broker.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from edge_broker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from edge_broker.protocol.scalars import bytes_, float64, nullable_bytes, string, uint16, uint32, uuid_


def test_api_versions_response_has_the_old_header_in_every_version() -> None:
    """One stray byte here crashes librdkafka."""
    response = ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)])
    api = APIS[API_VERSIONS]
    assert b"".join(response_frame(api, 0, 7, response)).hex(" ", 4) == "00000010 00000007 00230000 00010012 00000004"
    body = bytes.fromhex("0023 02 0012 0000 0004 00 00000000 00")
    assert b"".join(response_frame(api, 3, 7, response)) == (4 + len(body)).to_bytes(4, "big") + b"\0\0\0\x07" + body


def test_flexible_responses_have_tags_in_the_header() -> None:
    response = FetchResponse()
    assert b"".join(response_frame(APIS[FETCH], 11, 7, response))[4:12].hex() == "0000000700000000"
    assert b"".join(response_frame(APIS[FETCH], 12, 7, response))[4:13].hex() == "000000070000000000"


@pytest.mark.parametrize("version", [11, 12])
def test_a_long_answer_is_joined_on_the_way_and_never_whole(version: int) -> None:
    partitions = [PartitionData(partition_index=number, records=b"") for number in range(10_000)]
    answer = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])
    parts = run_steps(encode_steps(answer, version))
    whole = b"".join(encode(answer, version))
    assert b"".join(parts) == whole
    assert max(map(len, parts)) < len(whole) / 5


def test_produce_is_advertised_from_0_and_served_from_3() -> None:
    produce = APIS[PRODUCE]
    assert (produce.advertised_min, produce.min_version, produce.max_version) == (0, 3, 12)
    assert [produce.serves(version) for version in (2, 3, 12, 13)] == [False, True, True, False]
    assert all(api.advertised_min == api.min_version for api in APIS.values() if api is not produce)


def test_a_null_client_id_and_skipped_tags() -> None:
    header = read_request_header(memoryview(bytes.fromhex("0003 000c 00000009 ffff 01 05 02 abcd 99")), APIS)
    assert header == (METADATA, 12, 9, None, 15)


def test_api_versions_from_the_future_still_has_a_header() -> None:
    header = read_request_header(memoryview(bytes.fromhex("0012 0005 00000001 0001 61 00")), APIS)
    assert header == (18, 5, 1, "a", 12)


def test_of_an_unknown_key_the_client_id_is_read() -> None:
    assert read_request_header(memoryview(bytes.fromhex("7fff 0005 00000001 0001 61")), APIS)[3] == "a"


@pytest.mark.parametrize(
    "frame",
    [
        "",
        "0003",
        "0003 0000 00000001",
        "0003 0000 00000001 0005 61",  # client id beyond the end
        "0003 0000 00000001 fffe",  # length -2
        "0003 0000 00000001 0001 ff",  # not UTF-8
        "0003 000c 00000001 ffff",  # tags missing
        "0003 000c 00000001 ffff 01 05 7f",  # a tag beyond the end
        "0003 000c 00000001 ffff ffffffffff7f",  # too many tags
    ],
)
def test_frames_without_a_header(frame: str) -> None:
    with pytest.raises(ProtocolViolation):
        read_request_header(memoryview(bytes.fromhex(frame)), APIS)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16383, 16384, 2**31, 2**32 - 1])
def test_uvarints(value: int) -> None:
    written = uvarint(value)
    assert read_uvarint(b"x" + written, 1) == (value, 1 + len(written))


@pytest.mark.parametrize("content", ["ffffffff10", "ffffffffff01", "808080808000"])
def test_uvarints_beyond_32_bits(content: str) -> None:
    with pytest.raises(ProtocolViolation):
        read_uvarint(bytes.fromhex(content), 0)


def _refused(version: int, body: str) -> None:
    with pytest.raises(ProtocolViolation):
        decode(MetadataRequest, version, memoryview(bytes.fromhex(body)))


def test_null_only_where_the_version_allows_it() -> None:
    assert decode(MetadataRequest, 1, memoryview(bytes.fromhex("ffffffff"))).topics is None
    _refused(0, "ffffffff")
    _refused(1, "fffffffe")
    _refused(1, "00000001 ffff")
    by_id = bytes.fromhex("02" + "11" * 16 + "00" + "00" + "01" + "00" + "00")
    topics = decode(MetadataRequest, 12, memoryview(by_id)).topics
    assert topics is not None
    assert topics[0].name is None
    assert topics[0].topic_id.bytes == b"\x11" * 16


def test_counts_and_lengths_beyond_the_body() -> None:
    _refused(0, "7fffffff")
    _refused(0, "00000002 0000")
    _refused(0, "00000001 7fff 61")
    _refused(9, "ffffffff0f 00")
    _refused(9, "02 ffffffff0f")


def test_text_has_to_be_utf_8_of_at_most_32767_bytes() -> None:
    _refused(0, "00000001 0001 ff")
    longest = MetadataRequest(topics=[MetadataRequestTopic(name="x" * 32767)])
    assert decode(MetadataRequest, 9, memoryview(b"".join(encode(longest, 9)))) == longest
    longer = b"".join(encode(MetadataRequest(topics=[MetadataRequestTopic(name="x" * 32768)]), 9))
    with pytest.raises(ProtocolViolation):
        decode(MetadataRequest, 9, memoryview(longer))


def test_a_nullable_structure() -> None:
    absent = DescribeTopicPartitionsRequest()
    assert b"".join(encode(absent, 0)) == bytes.fromhex("01 000007d0 ff 00")
    present = DescribeTopicPartitionsRequest(cursor=Cursor(topic_name="t", partition_index=3))
    assert b"".join(encode(present, 0)) == bytes.fromhex("01 000007d0 01 0274 00000003 00 00")
    assert decode(DescribeTopicPartitionsRequest, 0, memoryview(b"".join(encode(present, 0)))) == present


def test_large_records_are_handed_on_not_copied() -> None:
    large, small = memoryview(bytearray(5000)), b"s" * 10
    response = FetchResponse(
        responses=[
            FetchableTopicResponse(partitions=[PartitionData(records=large), PartitionData(records=small)]),
        ]
    )
    parts = response_frame(APIS[FETCH], 12, 1, response)
    assert len(parts) == 3
    assert parts[1] is large
    assert int.from_bytes(parts[0][:4], "big") == sum(map(len, parts)) - 4


class _Rare(Message, flexible_from=1):
    """The wire types that no served message has yet."""

    port: int = uint16()
    size: int = uint32()
    share: float = float64()
    blob: bytes | None = nullable_bytes(default=None)
    ids: list[UUID] = array(uuid_)
    texts: list[str] | None = nullable_array(string, "1+", default=None)
    note: bytes = bytes_("1+", tag=3)


def test_wire_types_that_are_rare() -> None:
    message = _Rare(port=65535, size=2**32 - 1, share=-0.5, ids=[UUID(int=1)], texts=["a", ""], note=b"n")
    fixed = "ffff ffffffff bfe0000000000000"
    identity = "00" * 15 + "01"
    assert b"".join(encode(message, 0)).hex() == (fixed + "ffffffff 00000001" + identity).replace(" ", "")
    flexible = fixed + "00 02" + identity + "03 0261 01" + "01 03 02 026e"
    assert b"".join(encode(message, 1)).hex() == flexible.replace(" ", "")
    assert decode(_Rare, 1, memoryview(bytes.fromhex(flexible))) == message
    assert decode(_Rare, 1, memoryview(b"".join(encode(_Rare(blob=b"b" * 200), 1)))) == _Rare(blob=b"b" * 200)


def test_a_tag_that_does_not_end_where_it_says() -> None:
    body = b"".join(encode(_Rare(note=b"n"), 1))
    with pytest.raises(ProtocolViolation):
        decode(_Rare, 1, memoryview(body[:-3] + b"\x03" + body[-2:] + b"x"))


def test_messages_compare_and_show_their_fields() -> None:
    one = ApiVersionsRequest(client_software_name="kcat")
    assert one == ApiVersionsRequest(client_software_name="kcat")
    assert one != ApiVersionsRequest()
    assert one != "kcat"
    assert repr(one) == "ApiVersionsRequest(client_software_name='kcat', client_software_version='')"
    with pytest.raises(TypeError):
        ApiVersionsRequest(client_name="kcat")
    with pytest.raises(AttributeError):
        one.client_name = "kcat"
    with pytest.raises(TypeError):
        hash(one)


def test_lists_of_two_messages_are_two_lists() -> None:
    first, second = FetchResponse(), FetchResponse()
    first.responses.append(FetchableTopicResponse())
    assert second.responses == []


def test_importing_the_messages_brings_in_nothing_heavy() -> None:
    """The broker's footprint: this list is what such imports have cost before."""
    modules = "edge_broker.protocol.api, edge_broker.protocol.messages.fetch, edge_broker.protocol.record_batch"
    script = f"import sys, {modules}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "edge_broker.protocol.messages.fetch" in loaded
    assert not loaded & {
        "dataclasses",
        "inspect",
        "cramjam",
        "asyncio",
        "json",
        "logging",
        "ctypes",
        "decimal",
        "email",
    }
