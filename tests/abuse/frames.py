"""Requests made to hurt: each API with as many elements as fit, each text at its maximum, and the rows of past trials.

Everything is made from the declarations of messages, so that an API that comes later is abused too.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple, TypeAlias

from edge_broker.handlers import APIS
from edge_broker.protocol.api import API_VERSIONS, FETCH, JOIN_GROUP, METADATA, PRODUCE, Api
from edge_broker.protocol.codec import encode
from edge_broker.protocol.crc import crc32c
from edge_broker.protocol.message import Field, Message, MessageType
from edge_broker.protocol.record_batch import build_batch

TOPIC = "abused"
COMPACTED = "compacted"
HIDDEN = b"kept-from-strangers"
MANY = 128 << 10  # bytes of a request that each of very many connections sends
HUGE = 4 << 20
TEXT_MAX = 32_767
KNOWN: dict[str, Any] = {
    "acks": 1,
    "max_bytes": 1 << 20,
    "max_wait_ms": 60_000,
    "min_bytes": 1,
    "num_partitions": 1,
    "partition_max_bytes": 1 << 20,
    "protocol_type": "consumer",
    "rebalance_timeout_ms": 60_000,
    "replica_id": -1,
    "replication_factor": 1,
    "session_timeout_ms": 60_000,
    "timeout_ms": 1000,
    "include_synonyms": True,
    "include_documentation": True,
    "include_topic_authorized_operations": True,
    "resource_type": 2,
}


Talk: TypeAlias = Generator[bytes, bytes, bytes]
"""What a connection says to what it has received; what is returned is its last word."""


def nothing() -> bytes:
    """No payload at all."""
    return b""


class Case(NamedTuple):
    """One kind of abuse: what each connection sends, over and over; how many connections; whether they read.

    | field | |
    |---|---|
    | cut | bytes left out at the end of the first request; nothing follows |
    | to | the listener (tests/support/secured_edge.py) |
    | first | is sent once, at the beginning |
    | pace_s | seconds between two bytes; the first `ahead` bytes come at once |
    | talk | what is said instead; then the connection is closed |
    | reopened | connections that may be opened again, a second |
    | grows | the broker's figure that this makes grow, or the case is none |
    """

    name: str
    payload: Callable[[], bytes] = nothing
    connections: int = 1900
    reads: bool = True
    cut: int = 0
    to: str = "CLIENT"
    first: bytes = b""
    pace_s: float = 0.0
    ahead: int = 0
    talk: Callable[[], Talk] | None = None
    reopened: int = 500
    grows: str = ""


def framed(api: Api, version: int, body: bytes, client_id: bytes = b"abuser") -> bytes:
    """A whole frame around a body."""
    head = api.key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\1" + len(client_id).to_bytes(2, "big")
    frame = head + client_id + (b"\0" if version >= api.flexible_from else b"") + body
    return len(frame).to_bytes(4, "big") + frame


def request(key: int, message: Message, version: int) -> bytes:
    """A whole frame of a request."""
    return framed(APIS[key], version, b"".join(encode(message, version)))


def filled(of: MessageType, text: str, paths: tuple[str, ...] = (), count: int = 1) -> Any:
    """A message whose texts are `text`; the array at `paths` has `count` elements, others on its way one."""
    values: dict[str, Any] = {}
    for field in of.FIELDS:
        here = paths[0] if paths else None
        if field.name in KNOWN and field.kind not in ("array", "struct"):
            values[field.name] = KNOWN[field.name]
        elif field.kind == "string":
            values[field.name] = text
        elif field.kind == "bytes":
            values[field.name] = text.encode()
        elif field.kind == "array" and field.name == here:
            element = _element(field, text, paths[1:], count)
            values[field.name] = [element] * (count if len(paths) == 1 else 1)
    return of(**values)


def _element(field: Field, text: str, paths: tuple[str, ...], count: int) -> Any:
    if isinstance(field.of, MessageType):
        return filled(field.of, text, paths, count)
    return {"string": text, "bytes": text.encode()}.get(field.of, 0)


def arrays(of: MessageType, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The way to each array of a message, also inside others."""
    for field in of.FIELDS:
        if field.kind == "array":
            yield (*before, field.name)
            if isinstance(field.of, MessageType):
                yield from arrays(field.of, (*before, field.name))


def widest(api: Api, version: int, path: tuple[str, ...], size: int, text: str) -> bytes:
    """A request of about `size` bytes, most of them in the array at `path`."""
    one, two = (b"".join(encode(filled(api.request, text, path, count), version)) for count in (1, 2))
    if len(two) <= len(one):
        return framed(api, version, one)  # this version has no such array
    count = max(1, (size - len(one)) // (len(two) - len(one)))
    return framed(api, version, b"".join(encode(filled(api.request, text, path, count), version)))


def of_api(api: Api) -> Iterator[Case]:
    """Each array of an API at its largest, texts short (a topic that is there) and long."""
    for path in arrays(api.request):
        where = f"{api.name} {'.'.join(path)}"
        for version in sorted({api.min_version, api.max_version}):
            yield Case(f"{where} v{version}", lambda v=version, p=path: widest(api, v, p, MANY, TOPIC))  # type: ignore[misc]
        yield Case(f"{where} huge", lambda p=path: widest(api, api.min_version, p, HUGE, TOPIC), connections=8)  # type: ignore[misc]
    text = "x" * TEXT_MAX
    paths = list(arrays(api.request)) or [()]
    yield Case(f"{api.name} long texts", lambda: widest(api, api.max_version, paths[-1], 2 * TEXT_MAX, text))
    yield Case(f"{api.name} stops half way", lambda: widest(api, api.max_version, paths[0], MANY, TOPIC), cut=1)


def _produce(records: bytes, topic: str = TOPIC, version: int = 9) -> bytes:
    of = APIS[PRODUCE].request
    message = filled(of, topic, ("topic_data", "partition_data"))
    message.transactional_id = None
    message.topic_data[0].partition_data[0].records = records
    return request(PRODUCE, message, version)


def bomb(size: int = 64 << 20) -> bytes:
    """A batch that unpacks to `size` bytes of one record's value."""
    batch = bytearray(build_batch([(b"k", b"v")], timestamp_ms=1))
    packed = gzip.compress(bytes(size), 9)
    batch[61:] = packed
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[21:23] = b"\0\1"
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


def _join(size: int) -> bytes:
    of = APIS[JOIN_GROUP].request
    message = filled(of, "abuse", ("protocols",))
    message.group_id = f"abuse-{random.randrange(1 << 40)}"
    message.member_id, message.group_instance_id = "", None
    message.protocols[0].metadata = bytes(size)
    return request(JOIN_GROUP, message, 3 if size else 9)


def _all_topics() -> bytes:
    return request(METADATA, APIS[METADATA].request(topics=None), 1)


def _new_topics() -> bytes:
    of = APIS[METADATA].request
    message = filled(of, "x", ("topics",), 1)
    element = type(message.topics[0])
    message.topics = [element(name=f"made-{random.randrange(1 << 40)}") for _ in range(500)]
    return request(METADATA, message, 4)


def _new_producers() -> bytes:
    frames = []
    for _ in range(50):
        batch = build_batch(
            [(b"k", b"v")],
            timestamp_ms=1,
            producer_id=random.randrange(1 << 40),
            producer_epoch=0,
            base_sequence=0,
        )
        frames.append(_produce(batch))
    return b"".join(frames)


def _fetch() -> bytes:
    message = filled(APIS[FETCH].request, TOPIC, ("topics", "partitions"))
    return request(FETCH, message, 4)


def rows() -> Iterator[Case]:
    """The rows of past trials and their neighbours."""
    versions = framed(APIS[API_VERSIONS], 0, b"")
    yield Case("B1 40,000 pipelined", lambda: versions * 40_000, connections=4)
    yield Case("B1 pipelined, unread", lambda: versions * 10_000, connections=400, reads=False)
    yield Case("B2 metadata of 16 MB", lambda: widest(APIS[METADATA], 4, ("topics",), 16_000_000, "ab"), connections=4)
    yield Case("B4 joins of 1 MB", lambda: _join(1_000_000), connections=60)
    yield Case("B4 joins of 14 MB", lambda: _join(14_000_000), connections=8)
    yield Case("B4 ids that nobody uses", lambda: b"".join(_join(0) for _ in range(50)))
    yield Case("B5 fetches, unread", _fetch, reads=False)
    yield Case("B5 metadata, unread", lambda: _all_topics() * 500, reads=False)
    yield Case("B5 many names, unread", lambda: widest(APIS[METADATA], 4, ("topics",), MANY, TOPIC), reads=False)
    yield Case("B5 60 KB of names, unread", lambda: widest(APIS[METADATA], 4, ("topics",), 60_000, TOPIC), reads=False)
    yield Case("B6 announced and not sent", lambda: _produce(bytes(15_000_000)), connections=1900, cut=14_999_900)
    yield Case("B6 half produces of 1 MB", lambda: _produce(bytes(1_000_000)), cut=500_000)
    yield Case("B11 gzip bombs", lambda: _produce(bomb(), COMPACTED), connections=100)
    yield Case("topics that nobody wants", _new_topics, connections=100)
    yield Case("producers that nobody knows", _new_producers, connections=100)
    yield Case("noise", lambda: random.randbytes(4096))
    yield Case("nothing at all", lambda: b"", cut=0)


def on_every_api() -> Iterator[Case]:
    """What is tried on each API."""
    for api in APIS.values():
        yield from of_api(api)
