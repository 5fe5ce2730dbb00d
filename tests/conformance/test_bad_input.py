"""Bad batches get Kafka's error codes and are not stored; nonsense frames close their own connection and no other.

Raw frames over a socket, as no client would send them. `--broker kafka` shows that Apache Kafka answers the same.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import API_VERSIONS, APIS, LIST_OFFSETS, PRODUCE
from edge_broker.protocol.codec import decode, encode
from edge_broker.protocol.crc import crc32c
from edge_broker.protocol.message import Message
from edge_broker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from edge_broker.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from edge_broker.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from edge_broker.protocol.record_batch import build_batch
from tests.conformance.conftest import MESSAGE_BYTES_MAX

TIMEOUT_S = 30
VERSIONS = {PRODUCE: 9, LIST_OFFSETS: 6, API_VERSIONS: 3}
GOOD = build_batch([(b"k", b"v"), (None, b"w")], timestamp_ms=1_700_000_000_000)


class _Client:
    """One connection that asks and reads answers, a frame at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def ask(self, key: int, request: Message) -> Message:
        version = VERSIONS[key]
        header = key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\x05\0\x01t\0"
        self.send(header + b"".join(encode(request, version)))
        body = self.receive()
        assert body[:4] == b"\0\0\0\x05"
        return decode(APIS[key].response, version, memoryview(body), 4 if key == API_VERSIONS else 5)

    def send(self, frame: bytes) -> None:
        self.connection.sendall(len(frame).to_bytes(4, "big") + frame)

    def receive(self) -> bytes:
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def _exactly(self, size: int) -> bytes:
        got = b""
        while len(got) < size:
            part = self.connection.recv(size - len(got))
            assert part, "the broker closed the connection"
            got += part
        return got

    def is_closed_by_the_broker(self) -> bool:
        try:
            return self.connection.recv(1) == b""
        except ConnectionResetError:
            return True

    def produce(self, topic: str, records: bytes) -> ErrorCode:
        partition = PartitionProduceData(index=0, records=memoryview(records))
        request = ProduceRequest(
            acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[partition])]
        )
        response = self.ask(PRODUCE, request)
        assert isinstance(response, ProduceResponse)
        return ErrorCode(response.responses[0].partition_responses[0].error_code)

    def end_offset(self, topic: str) -> int:
        wanted = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(timestamp=-1)])
        response = self.ask(LIST_OFFSETS, ListOffsetsRequest(replica_id=-1, topics=[wanted]))
        assert isinstance(response, ListOffsetsResponse)
        return response.topics[0].partitions[0].offset


@contextmanager
def _connected(bootstrap: str) -> Iterator[_Client]:
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as connection:
        yield _Client(connection)


def _with(position: int, content: bytes, *, crc: bool = True) -> bytes:
    """Return the good batch with bytes put in, and a CRC that is right again unless it is to be wrong."""
    changed = bytearray(GOOD)
    changed[position : position + len(content)] = content
    if crc:
        changed[17:21] = crc32c(bytes(changed[21:])).to_bytes(4, "big")
    return bytes(changed)


def _i(size: int, value: int) -> bytes:
    return value.to_bytes(size, "big", signed=True)


# Not here, as the two differ: null records, which Kafka 4.3 never answers, and batches with log append time, whose flag
# Kafka takes off, which would be work per batch; both are refused by us (see the unit tests of record batches).
BAD = {
    "empty": (lambda: b"", ErrorCode.INVALID_RECORD),
    "two batches": (lambda: GOOD + GOOD, ErrorCode.INVALID_RECORD),
    "magic 1": (lambda: _with(16, b"\x01"), ErrorCode.INVALID_RECORD),
    "magic 3": (lambda: _with(16, b"\x03"), ErrorCode.CORRUPT_MESSAGE),
    "wrong CRC": (lambda: _with(17, b"\0\0\0\0", crc=False), ErrorCode.CORRUPT_MESSAGE),
    "garbled value": (lambda: _with(len(GOOD) - 2, b"!", crc=False), ErrorCode.CORRUPT_MESSAGE),
    "too large": (
        lambda: build_batch([(None, bytes(MESSAGE_BYTES_MAX))], timestamp_ms=1),
        ErrorCode.MESSAGE_TOO_LARGE,
    ),
    "base offset": (lambda: _with(0, _i(8, 5)), ErrorCode.INVALID_RECORD),
    "count against offsets": (lambda: _with(23, _i(4, 7)), ErrorCode.INVALID_RECORD),
    "no records": (lambda: _with(57, _i(4, 0)), ErrorCode.INVALID_RECORD),
    "control batch": (lambda: _with(21, _i(2, 0x20)), ErrorCode.INVALID_RECORD),
    "producer without sequence": (
        lambda: _with(43, _i(8, 9) + _i(2, 0) + _i(4, -1)),
        ErrorCode.INVALID_RECORD,
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_batch_is_refused_and_not_stored(broker, new_topic: Callable[..., str], case: str) -> None:
    topic = new_topic()
    make, code = BAD[case]
    with _connected(broker.bootstrap) as client:
        assert client.produce(topic, GOOD) == ErrorCode.NONE
        assert client.produce(topic, make()) == code
        assert client.produce(topic, GOOD) == ErrorCode.NONE
        assert client.end_offset(topic) == 4


NONSENSE = {
    "oversized": b"\x7f\xff\xff\xff",
    "negative size": b"\xff\xff\xff\xff",
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "no header": b"\0\0\0\x03abc",
    "client id beyond the end": b"\0\0\0\x0c\0\x12\0\x03\0\0\0\x05\x7f\xffab",
    "unknown key": b"\0\0\0\x0b\x7f\xff\0\0\0\0\0\x05\0\x01t",
    "cut-off body": b"\0\0\0\x10\0\0\0\x09\0\0\0\x05\0\x01t\0\0\xff\xff\0",
}


@pytest.mark.parametrize("frame", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_closes_its_own_connection_only(broker, frame: bytes) -> None:
    with _connected(broker.bootstrap) as bystander, _connected(broker.bootstrap) as client:
        client.connection.sendall(frame)
        assert client.is_closed_by_the_broker()
        assert isinstance(bystander.ask(API_VERSIONS, ApiVersionsRequest()), ApiVersionsResponse)
