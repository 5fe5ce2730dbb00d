"""ApiVersions, and frames that are no requests."""

from __future__ import annotations

from edge_broker.handlers import APIS
from edge_broker.protocol.api import API_VERSIONS, DESCRIBE_CLUSTER, METADATA, PRODUCE
from edge_broker.protocol.messages.api_versions import ApiVersionsRequest
from edge_broker.protocol.messages.describe_cluster import DescribeClusterRequest
from edge_broker.protocol.messages.metadata import MetadataRequest
from tests.differential.session import CLOSED, Session, case
from tests.differential.wire import ClosedError, Connection

NEWEST = (APIS[API_VERSIONS].max_version,)


def _asked(name: str = "differential", version: str = "1.0") -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name=name, client_software_version=version)


@case(API_VERSIONS)
def api_versions(s: Session, version: int) -> None:
    s.ask(API_VERSIONS, _asked(), version)


@case(API_VERSIONS, versions=(3, 4))
def api_versions_of_odd_software(s: Session, version: int) -> None:
    s.ask(API_VERSIONS, _asked("", ""), version, on="empty", label="empty")
    s.ask(API_VERSIONS, _asked("with space"), version, on="space", label="space")
    s.ask(API_VERSIONS, _asked("-dash"), version, on="dash", label="dash")


@case(API_VERSIONS, versions=NEWEST)
def api_versions_too_new(s: Session, _: int) -> None:
    for version in (5, 99):
        s.ask_body(API_VERSIONS, b"", version, label=f"version {version}")


@case(METADATA, versions=(12,))
def nonsense(s: Session, _: int) -> None:
    """Frames that are no requests cost their connection, or are answered, as Kafka does."""
    good = b"\0\x12\0\0\0\0\0\0\0\x01d"
    for label, data in {
        "size 0": b"\0\0\0\0",
        "negative size": b"\xff\xff\xff\xff",
        "size over the bound": b"\x7f\xff\xff\xff",
        "HTTP": b"GET / HTTP/1.1\r\n\r\n",
        "TLS hello": b"\x16\x03\x01\0\x05hello",
        "three bytes": b"\0\0\0\x03abc",
        "unknown key": b"\0\0\0\x0b\x7f\xff\0\0\0\0\0\0\0\x01t",
        "negative key": b"\0\0\0\x0b\xff\xff\0\0\0\0\0\0\0\x01t",
        "negative version": b"\0\0\0\x0b\0\x03\xff\xff\0\0\0\0\0\x01t",
        "client id beyond the end": b"\0\0\0\x0c\0\x12\0\x03\0\0\0\0\x7f\xffab",
        "client id of length -2": b"\0\0\0\x0a\0\x12\0\0\0\0\0\0\xff\xfe",
        "no UTF-8 in the client id": b"\0\0\0\x0b\0\x12\0\0\0\0\0\0\0\x01\xff",
        "bytes behind the request": len(good + b"abc").to_bytes(4, "big") + good + b"abc",
    }.items():
        s.note(label, _end(s.bootstrap, data))


def _end(bootstrap: str, data: bytes) -> str:
    with Connection(bootstrap, timeout_s=10) as connection:
        connection.send_bytes(data)
        try:
            return f"{len(connection.receive_frame()) > 0}"
        except ClosedError:
            return CLOSED


@case(METADATA, versions=(1, 12))
def bodies_that_lie(s: Session, version: int) -> None:
    """Lengths and counts that the frame does not hold."""
    for label, body in {
        "empty": b"",
        "count 2^31-1": b"\x7f\xff\xff\xff" if version < 9 else b"\xff\xff\xff\xff\x07",
        "count -2": b"\xff\xff\xff\xfe",
        "name beyond the end": b"\0\0\0\x01\x7f\xff" if version < 9 else b"\x02\x7f",
        "varint of ten bytes": b"\xff" * 10,
    }.items():
        s.ask_body(METADATA, body, version, label=label)


@case(PRODUCE, versions=(3, 9))
def produce_bodies_that_lie(s: Session, version: int) -> None:
    for label, body in {
        "empty": b"",
        "topic count 2^31-1": (b"\xff\xff" if version < 9 else b"\0") + b"\xff\xff\0\0\0\x1e\x7f\xff\xff\xff",
        "records beyond the end": (b"\xff\xff" if version < 9 else b"\0")
        + b"\xff\xff\0\0\0\x1e\0\0\0\x01\0\x01t\0\0\0\x01\0\0\0\0\x7f\xff\xff\xff",
    }.items():
        s.ask_body(PRODUCE, body, version, label=label)


@case(METADATA, versions=(12,))
def order_of_answers(s: Session, version: int) -> None:
    """Pipelined requests are answered in the order in which they came."""
    for _ in range(50):
        s.send(METADATA, MetadataRequest(topics=[]), version)
        s.send(DESCRIBE_CLUSTER, DescribeClusterRequest(), 0)
    for _ in range(50):
        s.receive(METADATA, version)
        s.receive(DESCRIBE_CLUSTER, 0)
