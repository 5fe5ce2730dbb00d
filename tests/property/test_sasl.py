"""Properties of everything that can be sent before a log-in.

Invariants:
- Any bytes on a SASL listener are answered or close their connection; no handler fails, and nobody is logged in.
- A message of SCRAM or PLAIN that is cut, garbled or made up logs nobody in, and raises nothing but LogInFailed.
- Whatever comes, nothing but ApiVersions, SaslHandshake and SaslAuthenticate is answered.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edge_broker.protocol.api import API_VERSIONS, METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE
from edge_broker.protocol.codec import encode
from edge_broker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from edge_broker.protocol.messages.sasl_handshake import SaslHandshakeRequest
from edge_broker.security.sasl import Trial, check_plain, read_plain
from edge_broker.security.scram import (
    ITERATIONS_MIN,
    MECHANISMS,
    CredentialLookup,
    LogInFailed,
    ScramExchange,
    new_credential,
)
from tests.support.scram import ScramClient, plain
from tests.unit.broker.test_logins import NAME, secured

PASSWORD = "secret"
SITE = secured()
NAMES = sorted(MECHANISMS)
FOUND = {
    name: CredentialLookup(new_credential(one, PASSWORD, b"salt", 4096), known=True) for name, one in MECHANISMS.items()
}
before_log_in = {API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE}


def framed(key: int, version: int, body: bytes) -> bytes:
    frame = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True) + bytes(4) + b"\0\1t" + body
    return len(frame).to_bytes(4, "big") + frame


tokens = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(NAMES).map(lambda name: ScramClient(name, "alice", "wrong").first),
    st.text(max_size=12).map(lambda text: f"n,,n=alice,r={text}".encode()),
    st.text(max_size=12).map(lambda text: f"c=biws,r=nonce{text},p=AAAA".encode()),
    st.tuples(st.text(max_size=8), st.text(max_size=8)).map(lambda pair: plain(*pair)),
)
requests = st.one_of(
    st.sampled_from([*NAMES, "PLAIN", "GSSAPI", ""]).map(
        lambda name: framed(SASL_HANDSHAKE, 1, b"".join(encode(SaslHandshakeRequest(mechanism=name), 1)))
    ),
    tokens.map(
        lambda data: framed(SASL_AUTHENTICATE, 1, b"".join(encode(SaslAuthenticateRequest(auth_bytes=data), 1)))
    ),
    st.tuples(st.integers(-2, 80), st.integers(-1, 5), st.binary(max_size=40)).map(lambda parts: framed(*parts)),
    st.binary(max_size=30),
    st.just(framed(METADATA, 1, b"\xff\xff\xff\xff")),
)


@given(st.lists(requests, max_size=6), st.integers(1, 100))
def test_any_bytes_are_answered_or_close_their_connection(sent: list[bytes], piece: int) -> None:
    SITE.dispatcher.requests.clear()
    client = SITE.client(NAME)
    data = b"".join(sent)
    for position in range(0, len(data), piece):
        client.arrive(data[position : position + piece])
        SITE.run_until_idle()
    SITE.loop.advance(200)
    login = client.connection.session.login
    assert login is not None
    assert not login.user
    assert client.connection.session.principal == "User:ANONYMOUS"
    assert SITE.dispatcher.failures == 0
    assert set(SITE.dispatcher.requests) <= {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}
    client.lose()
    assert not SITE.server.connections


@given(st.sampled_from(NAMES), st.data())
def test_a_garbled_exchange_logs_nobody_in(name: str, data: st.DataObject) -> None:
    client, exchange = ScramClient(name, "alice", PASSWORD), ScramExchange(MECHANISMS[name], "s" * 32)
    first = bytearray(client.first)
    if garbled := data.draw(st.booleans()):
        first[data.draw(st.integers(0, len(first) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        challenge = exchange.step(bytes(first), lambda _user: FOUND[name])
        if not challenge.data.startswith(b"r=nonce"):
            return
        final = bytearray(client.final(challenge.data))
        if not garbled:  # the last digit of base64 apart: some of its bits say nothing
            final[data.draw(st.integers(0, len(final) - 4))] ^= 1 << data.draw(st.integers(0, 7))
        exchange.step(bytes(final), lambda _user: FOUND[name])
    except LogInFailed:
        return
    raise AssertionError(f"{bytes(first)!r} logged in")


@given(st.binary(max_size=60))
def test_made_up_messages_of_plain_log_nobody_in(data: bytes) -> None:
    try:
        check_plain(read_plain(data), [Trial(NAMES[0], FOUND[NAMES[0]], ITERATIONS_MIN)])
    except LogInFailed:
        return
    raise AssertionError(f"{data!r} logged in")
