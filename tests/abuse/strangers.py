"""What can be done to listeners with TLS and log-ins, by those who do not log in, and by those who have no rights.

Lives here: what is sent, and what a stranger waits for. Must never come in: sockets (abusers.py), what must hold
(run.py).
"""

from __future__ import annotations

import contextlib
import random
import ssl
from collections.abc import Generator, Iterator

from edge_broker.handlers import APIS
from edge_broker.protocol.api import API_VERSIONS, DELETE_TOPICS, METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE
from edge_broker.protocol.codec import encode
from edge_broker.protocol.message import NO_UUID
from edge_broker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from edge_broker.protocol.messages.metadata import MetadataRequest
from edge_broker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from edge_broker.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.abuse.frames import TOPIC, Case, Talk, filled, framed, request
from tests.support.rights import ASKED, Names
from tests.support.scram import ScramClient, plain
from tests.support.secured_kafka import PASSWORD, USER

WRONG = "not the password"
SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
MANY = 300  # that each wait for several answers: more would wait for each other
HELLO_BYTES_MAX = 131_000  # OpenSSL takes 131,396
TLS, LOGIN, BOTH = "TLS", "LOGIN", "BOTH"
HANDSHAKES, HANDSHAKE_FAILURES = "handshakes_total", "handshake_failures_total"
FAILED, SUCCESSFUL, DENIED = (
    "failed_authentication_total",
    "successful_authentication_total",
    "authorization_denied_total",
)
CLOSED = "protocol_violations_total"
CLOSING = (FAILED, CLOSED)  # where these grow the broker closes the connection


def trusting() -> ssl.SSLContext:
    """What a client of TLS needs that asks for no name."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def client_hello() -> bytes:
    """What a client of TLS begins with."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        trusting().wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def records(message: bytes) -> bytes:
    """A handshake message in TLS records."""
    parts = [message[position : position + 16_384] for position in range(0, len(message), 16_384)]
    return b"".join(b"\x16\3\1" + len(part).to_bytes(2, "big") + part for part in parts)


def huge_hello() -> bytes:
    """A ClientHello as large as OpenSSL takes one: cipher suites and an extension that nobody knows."""
    suites = b"\x5a\x5a" * 32_766
    extension = bytes(HELLO_BYTES_MAX - len(suites) - 100)
    extensions = b"\xfe\xfe" + len(extension).to_bytes(2, "big") + extension
    body = b"\3\3" + random.randbytes(32) + b"\0" + len(suites).to_bytes(2, "big") + suites + b"\1\0"
    body += len(extensions).to_bytes(2, "big") + extensions
    return records(b"\1" + len(body).to_bytes(3, "big") + body)


def shaken(context: ssl.SSLContext, *, whole: bool = True, then: bytes = b"") -> Talk:
    """A handshake, and what is sent behind it as it is; not `whole`: it ends once the broker has signed for it."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    while True:
        try:
            tls.do_handshake()
            return outgoing.read() + then
        except ssl.SSLWantReadError:
            incoming.write((yield outgoing.read()))
            if not whole:
                return b""


def whole_frame(first: bytes) -> Generator[bytes, bytes, bytes]:
    """Send a request, and return the content of the frame that answers it."""
    got = yield first
    while len(got) < 4 or len(got) < 4 + int.from_bytes(got[:4], "big"):
        got += yield b""
    return got[4:]


def handshake(mechanism: str) -> bytes:
    """The request that begins a log-in."""
    return request(SASL_HANDSHAKE, SaslHandshakeRequest(mechanism=mechanism), 1)


def token(data: bytes) -> bytes:
    """The request with a message of the mechanism."""
    return request(SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=data), 1)


def by_plain(user: str, password: str) -> bytes:
    """A log-in by PLAIN, whose second request needs no answer to the first."""
    return handshake("PLAIN") + token(plain(user, password))


def plain_log_in(user: str, password: str) -> Talk:
    """The same, and it waits for the answers."""
    yield from whole_frame(handshake("PLAIN"))
    yield from whole_frame(token(plain(user, password)))
    return b""


def said(data: bytes) -> Talk:
    """This, and gone before it is answered."""
    yield from ()
    return data


def scram_log_in(mechanism: str, user: str, password: str, *, whole: bool = True) -> Talk:
    """A log-in by SCRAM; not `whole`: it ends before its last message."""
    client = ScramClient(mechanism, user, password)
    yield from whole_frame(handshake(mechanism))
    answer = yield from whole_frame(token(client.first))
    if whole:
        begin, end = answer.index(b"r=nonce"), answer.index(b",i=4096")
        yield from whole_frame(token(client.final(answer[begin:end] + b",i=4096")))
    return b""


def somebody() -> str:
    """A user that is not there."""
    return f"user-{random.randrange(1 << 40)}"


def handshakes() -> Iterator[Case]:
    """What can be done to a listener with TLS until a handshake is complete, and just behind it."""
    context = trusting()
    yield Case("TLS handshakes half made", client_hello, cut=100, to=TLS, grows=HANDSHAKE_FAILURES)
    yield Case("TLS handshakes never gone on with", lambda: client_hello() + b"x", cut=1, to=TLS)
    yield Case("TLS handshakes, a byte a second", client_hello, pace_s=1.0, to=TLS, grows=HANDSHAKE_FAILURES)
    yield Case("TLS handshakes begun over and over", client_hello, to=TLS, grows=HANDSHAKE_FAILURES)
    yield Case("TLS handshakes by a few, begun over and over", client_hello, connections=100, to=TLS)
    half = Case("TLS handshakes left once signed for", talk=lambda: shaken(context, whole=False), to=TLS)
    yield half._replace(grows=HANDSHAKE_FAILURES)
    noise = random.randbytes(20_000)
    for case in (
        Case("TLS handshakes complete, over and over", talk=lambda: shaken(context)),
        Case("TLS: noise behind a handshake", talk=lambda: shaken(context, then=noise)),
    ):
        yield case._replace(connections=50, to=TLS, grows=HANDSHAKES)
    yield Case("TLS: a huge ClientHello", huge_hello, connections=100, to=TLS, grows=HANDSHAKE_FAILURES)
    endless = records(b"\1\xff\xff\xff" + bytes(1 << 20))
    yield Case("TLS: a ClientHello of 16 MB", lambda: endless, to=TLS, grows=HANDSHAKE_FAILURES)
    yield Case("TLS: plain requests", lambda: framed(APIS[API_VERSIONS], 0, b""), to=TLS, grows=HANDSHAKE_FAILURES)
    yield Case("TLS: noise", lambda: b"\x16\3\1\xff\xff" + random.randbytes(1 << 17), to=TLS)
    yield Case("TLS: nothing at all", to=TLS)


def log_ins() -> Iterator[Case]:
    """Log-ins by the thousand, and those that never come to an end."""
    dripping = token(bytes(65_400))
    all_topics = request(METADATA, MetadataRequest(topics=None), 1)
    for case in (
        Case("log-ins by PLAIN: wrong passwords", talk=lambda: plain_log_in(USER, WRONG), grows=FAILED),
        Case("log-ins by PLAIN: unknown users", talk=lambda: plain_log_in(somebody(), WRONG), grows=FAILED),
        Case("log-ins by PLAIN: right ones", talk=lambda: plain_log_in(USER, PASSWORD), grows=SUCCESSFUL),
        Case("log-ins by PLAIN: said and gone", talk=lambda: said(by_plain(USER, WRONG)), reopened=100),
        Case("log-ins by SCRAM: wrong passwords", talk=lambda: scram_log_in(SHA_256, USER, WRONG), grows=FAILED),
        Case("log-ins by SCRAM: unknown users", talk=lambda: scram_log_in(SHA_256, "nobody", WRONG), grows=FAILED),
        Case("log-ins by SCRAM: right ones", talk=lambda: scram_log_in(SHA_512, USER, PASSWORD), grows=SUCCESSFUL),
        Case("log-ins by SCRAM: left half way", talk=lambda: scram_log_in(SHA_256, USER, PASSWORD, whole=False)),
        Case("log-ins of 64 KB, a byte a second", lambda: dripping, ahead=65_000, pace_s=1.0),
        Case("log-ins of 64 KB", lambda: handshake("PLAIN") + dripping, grows=FAILED),
        Case("log-ins: requests without one", lambda: all_topics, grows=CLOSED),
        Case("log-ins: nothing at all"),
    ):
        yield case._replace(to=LOGIN, connections=MANY if case.talk is not None else case.connections)
    yield Case("log-ins by TLS: nothing at all", to=BOTH)


def every_request() -> bytes:
    """Good requests of each API: for what is there, for what is not, in each version that is served."""
    there = Names(TOPIC, NO_UUID, "absent", "group", "no-group")
    frames = [request(asked.key, asked.request(there), asked.version) for asked in ASKED]
    for key, api in APIS.items():
        if key not in (SASL_HANDSHAKE, SASL_AUTHENTICATE):  # they end a log-in's connection
            for version in range(api.min_version, api.max_version + 1):
                frames.append(framed(api, version, b"".join(encode(filled(api.request, TOPIC), version))))
    return b"".join(frames)


def without_rights() -> Iterator[Case]:
    """What a user without any right does."""
    many = [DeleteTopicState(name=f"{TOPIC}-{number}") for number in range(2000)]
    topics = b"".join(encode(DeleteTopicsRequest(topics=many, timeout_ms=1000), 6))
    named = framed(APIS[DELETE_TOPICS], 6, topics, client_id=b"c" * 32_000)
    for case in (
        Case("no rights: every API", every_request, connections=20),
        Case("no rights: every API, by many", every_request, connections=MANY),
        Case("no rights: denials by the thousand", lambda: named, connections=100),
    ):
        yield case._replace(to=LOGIN, first=by_plain(USER, PASSWORD), grows=DENIED)
