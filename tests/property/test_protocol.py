"""Properties of the codec.

Invariants:
- Every message of every API and version comes back from its own bytes as it was.
- Every cut and every garbling of a valid message, and every random body, gives a message or ProtocolViolation.
- A message cut anywhere is never taken for whole; bytes behind it change nothing.
- What a frame makes us allocate is bounded by a multiple of its size, whatever counts and lengths it claims.
- Unknown tagged fields change nothing.
- A header is read, or refused with ProtocolViolation; a frame's records are views into it.
- check_batch answers with a header or Refusal, and takes no batch of which one bit has flipped.
- records_of ends with records, Refusal or ProtocolViolation.
"""

from __future__ import annotations

import contextlib
import random
import tracemalloc
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_broker.broker.outcomes import run_steps
from edge_broker.errors import ProtocolViolation, Refusal
from edge_broker.handlers import APIS
from edge_broker.protocol import record_batch
from edge_broker.protocol.api import Api, read_request_header
from edge_broker.protocol.codec import (
    SMALL_ARRAY,
    TooLargeAtOnce,
    decode,
    decode_small,
    decode_steps,
    encode,
    encode_steps,
    uvarint,
)
from edge_broker.protocol.message import Message
from edge_broker.protocol.messages.fetch import FetchRequest
from edge_broker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from edge_broker.protocol.record_batch import build_batch, check_batch, records_of
from tests.support.messages import random_message
from tests.support.record_batches import batch_builder

BATCH_BYTES_MAX = 1 << 20
BYTES_PER_BYTE_MAX = 200  # an empty structure of one byte on the wire is an object of about 100 in memory
BYTES_FIXED = 64 * 1024

apis = pytest.mark.parametrize("api", [pytest.param(api, id=api.name) for api in APIS.values()])
seeds = st.integers(0, 2**32)


def _messages(api: Api, rnd: random.Random) -> list[tuple[type[Message], int, Message, bytes]]:
    """Return a random request and response of every version, with their bytes."""
    made = []
    for message_type in (api.request, api.response):
        for version in range(api.min_version, api.max_version + 1):
            message = random_message(message_type, version, rnd)
            made.append((message_type, version, message, b"".join(encode(message, version))))
    return made


def _decode_or_refuse(message_type: type[Message], version: int, body: bytes) -> Message | None:
    try:
        return decode(message_type, version, memoryview(body))
    except ProtocolViolation:
        return None


@apis
@given(seed=seeds)
@settings(max_examples=20, deadline=None)
def test_round_trip(api: Api, seed: int) -> None:
    for message_type, version, message, body in _messages(api, random.Random(seed)):
        assert decode(message_type, version, memoryview(body)) == message


@apis
@given(seed=seeds)
@settings(max_examples=20, deadline=None)
def test_what_is_read_and_written_in_steps_is_the_same(api: Api, seed: int) -> None:
    for message_type, version, message, body in _messages(api, random.Random(seed)):
        assert b"".join(run_steps(encode_steps(message, version))) == body
        assert run_steps(decode_steps(message_type, version, memoryview(body))) == message
        try:
            assert decode_small(message_type, version, memoryview(body)) == message
        except TooLargeAtOnce:
            assert max(map(len, _arrays(message))) > SMALL_ARRAY


def _arrays(message: Message) -> Iterator[list[Any]]:
    for field in message.FIELDS:
        found = getattr(message, field.name)
        if isinstance(found, list):
            yield found
        for inside in found if isinstance(found, list) else [found]:
            if isinstance(inside, Message):
                yield from _arrays(inside)


@apis
@given(seed=seeds)
@settings(max_examples=20, deadline=None)
def test_a_message_ends_where_it_ends(api: Api, seed: int) -> None:
    rnd = random.Random(seed)
    for message_type, version, message, body in _messages(api, rnd):
        for end in {0, len(body) - 1, rnd.randrange(len(body) + 1)} - {len(body), -1}:
            assert _decode_or_refuse(message_type, version, body[:end]) is None
        assert _decode_or_refuse(message_type, version, body + b"\xff\0\0") == message


@apis
@given(seed=seeds)
@settings(max_examples=20, deadline=None)
def test_garbling_is_refused_or_another_message(api: Api, seed: int) -> None:
    rnd = random.Random(seed)
    for message_type, version, _, body in _messages(api, rnd):
        garbled = bytearray(body)
        for _ in range(rnd.choice((1, 1, 2, 8))):
            if garbled:
                garbled[rnd.randrange(len(garbled))] = rnd.choice((0, 1, 0x7F, 0x80, 0xFF, rnd.randrange(256)))
        _decode_or_refuse(message_type, version, bytes(garbled))


@apis
@given(body=st.binary(max_size=300))
@settings(max_examples=40, deadline=None)
def test_random_bodies(api: Api, body: bytes) -> None:
    for message_type in (api.request, api.response):
        for version in range(api.min_version, api.max_version + 1):
            _decode_or_refuse(message_type, version, body)


@apis
@given(seed=seeds)
@settings(max_examples=10, deadline=None)
def test_claims_allocate_nothing(api: Api, seed: int) -> None:
    """Bodies of large counts: each byte 0x7f and 0xff is somewhere a count or a length of up to 2^31."""
    rnd = random.Random(seed)
    for message_type, version, _, body in _messages(api, rnd):
        garbled = bytearray(body[:2000])
        at = rnd.randrange(len(garbled) + 1)
        garbled[at : at + 4] = rnd.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\x00\x0f\xff\xff"))
        _decode_or_refuse(message_type, version, b"")  # compiled now, not while memory is counted
        tracemalloc.start()
        try:
            _decode_or_refuse(message_type, version, bytes(garbled))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < BYTES_FIXED + BYTES_PER_BYTE_MAX * len(garbled)


@given(tag=st.integers(40, 2**32 - 1), value=st.binary(max_size=300))
def test_unknown_tags_are_skipped(tag: int, value: bytes) -> None:
    body = b"".join(encode(FetchRequest(rack_id="rack"), 17))
    assert body[-1] == 0  # the request's own tagged section, empty
    tagged = body[:-1] + b"\x01" + uvarint(tag) + uvarint(len(value)) + value
    assert decode(FetchRequest, 17, memoryview(tagged)) == FetchRequest(rack_id="rack")


@given(frame=st.binary(max_size=80))
def test_random_headers(frame: bytes) -> None:
    try:
        *_, position = read_request_header(memoryview(frame), APIS)
    except ProtocolViolation:
        return
    assert 10 <= position <= len(frame)


@given(records=st.binary(min_size=1, max_size=5000), version=st.integers(3, 12))
def test_records_are_views_into_the_frame(records: bytes, version: int) -> None:
    partition = PartitionProduceData(index=1, records=records)
    request = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t", partition_data=[partition])])
    frame = memoryview(bytearray(b"".join(encode(request, version))))
    view = decode(ProduceRequest, version, frame).topic_data[0].partition_data[0].records
    assert isinstance(view, memoryview)
    assert view.obj is frame.obj
    assert view == records


def _batch(codec: int, rnd: random.Random) -> bytes:
    builder = batch_builder(codec)
    for offset in range(rnd.randrange(1, 20)):
        key = rnd.choice((None, b"", rnd.randbytes(9)))
        headers = [("h", None), ("grüße", b"v")][: rnd.randrange(3)]
        builder.append(offset, 1_700_000_000_000 + offset, key, rnd.choice((None, b"x" * 300)), headers)
    return bytes(builder.build())


codecs = pytest.mark.parametrize("codec", range(5), ids=("none", "gzip", "snappy", "lz4", "zstd"))


@codecs
@given(seed=seeds)
@settings(max_examples=40, deadline=None)
def test_a_flipped_bit_is_refused(codec: int, seed: int) -> None:
    rnd = random.Random(seed)
    batch = bytearray(_batch(codec, rnd))
    assert check_batch(memoryview(batch), BATCH_BYTES_MAX).codec == codec
    position = rnd.choice([*range(8, 12), *range(16, len(batch))])  # base offset and leader epoch are outside the CRC
    batch[position] ^= 1 << rnd.randrange(8)
    with pytest.raises(Refusal):
        check_batch(memoryview(batch), BATCH_BYTES_MAX)


@given(records=st.binary(max_size=200))
def test_random_records(records: bytes) -> None:
    with contextlib.suppress(Refusal):
        check_batch(memoryview(records), BATCH_BYTES_MAX)
        raise AssertionError("random bytes with a right CRC")


@codecs
@given(seed=seeds)
@settings(max_examples=20, deadline=None)
def test_garbled_insides(codec: int, seed: int) -> None:
    rnd = random.Random(seed)
    batch = bytearray(_batch(codec, rnd))
    for _ in range(rnd.choice((1, 2, 10))):
        batch[rnd.randrange(len(batch))] = rnd.choice((0, 1, 0x7F, 0x80, 0xFF))
    bound = mock.patch.object(record_batch, "DECOMPRESSED_BYTES_MAX", BATCH_BYTES_MAX)  # less to clear, so quicker
    with bound, contextlib.suppress(Refusal, ProtocolViolation):
        list(records_of(memoryview(batch)))


@given(
    st.lists(st.tuples(st.none() | st.binary(max_size=200), st.none() | st.binary(max_size=200)), min_size=1),
    st.integers(0, 2**41),
    st.integers(0, 2**60),
)
def test_built_batches_are_read_back(
    pairs: list[tuple[bytes | None, bytes | None]], timestamp_ms: int, base_offset: int
) -> None:
    batch = build_batch(pairs, timestamp_ms=timestamp_ms, base_offset=base_offset)
    read = list(records_of(memoryview(batch)))
    assert [(record.key, record.value) for record in read] == pairs
    assert [record.offset for record in read] == list(range(base_offset, base_offset + len(pairs)))
    assert {record.timestamp for record in read} == {timestamp_ms}
