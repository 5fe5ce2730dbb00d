"""Bad batches get Kafka's error codes and are not stored; nonsense frames close their own connection and no other.

Raw frames over a socket, as no client would send them. `--broker kafka` shows that Apache Kafka answers the same.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import API_VERSIONS
from edge_broker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from edge_broker.protocol.record_batch import build_batch
from tests.support.conformance.limits import MESSAGE_BYTES_MAX
from tests.support.raw_client import connected
from tests.support.record_batches import changed

GOOD = build_batch([(b"k", b"v"), (None, b"w")], timestamp_ms=1_700_000_000_000)


def _with(position: int, content: bytes, *, crc: bool = True) -> bytes:
    """Return the good batch with bytes put in, and a CRC that is right again unless it is to be wrong."""
    return changed(GOOD, position, content, crc=crc)


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
    with connected(broker.bootstrap) as client:
        assert client.produce(topic, GOOD).error_code == ErrorCode.NONE
        assert client.produce(topic, make()).error_code == code
        assert client.produce(topic, GOOD).error_code == ErrorCode.NONE
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
    with connected(broker.bootstrap) as bystander, connected(broker.bootstrap) as client:
        client.connection.sendall(frame)
        assert client.is_closed_by_the_broker()
        assert isinstance(bystander.ask(API_VERSIONS, ApiVersionsRequest()), ApiVersionsResponse)
