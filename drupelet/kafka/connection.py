"""Open one blocking connection to a Kafka broker, with TLS and SASL, for tools and `check --connect`.

| step | its errors |
|---|---|
| TCP | an OSError, as it is |
| TLS | NotConnected: the wrong certificate, or one side without TLS |
| SaslHandshake 1, SaslAuthenticate 1 | NotConnected: no authentication there, another mechanism, the user is refused |

Every sentence follows the broker's address, and names the keys of security.py.
Does not contain: topics, records, requests of one part. Source: Kafka's protocol guide, KIP-43 and KIP-152.
"""

from __future__ import annotations

import socket
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from drupelet.addresses import host_and_port
from drupelet.errors import ConfigurationError
from drupelet.kafka.connection_errors import WANTS_CERTIFICATE, explain
from drupelet.kafka.security import Security
from drupelet.printable import peer_text

METADATA, SASL_HANDSHAKE, SASL_AUTHENTICATE = 3, 17, 36
METADATA_VERSION = 8  # served by Apache Kafka 2.4 to 4.x and by the edge broker
UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE = 33, 34
ANSWER_BYTES_MAX = 1 << 24
TIMEOUT_S = 10.0
_CORRELATION_ID = 5
NO_KAFKA = "does not speak the Kafka protocol: does another service listen on that port?"
WANTS_TLS = "answers in TLS on that port: set security_protocol to SSL or SASL_SSL"


class NotConnected(Exception):
    """The reason why there is no connection: a predicate of the broker, with the remedy."""


class End(NamedTuple):
    """The result of one check; `trouble` is None without a problem, else the text after the name."""

    name: str
    trouble: str | None
    unknown: str | None = None  # the part that could not be checked, with the remedy

    @property
    def line(self) -> str:
        """The line that the command prints."""
        if self.trouble is not None:
            return f"{self.name} {self.trouble}"
        return f"{self.name}: ok" if self.unknown is None else f"{self.name}: ok, but {self.unknown}"


def connect(security: Security, host: str, port: int, timeout_s: float = TIMEOUT_S) -> socket.socket:
    """Return a connection for requests: encrypted and authenticated, if the security requires it.

    OSError from TCP alone, NotConnected for the rest. `timeout_s` bounds each wait, and stays set.
    """
    try:
        context = security.context()
    except ConfigurationError as error:
        raise NotConnected(f"is not tried, as {error}") from error
    plain = socket.create_connection((host, port), timeout_s)
    try:
        connection: socket.socket = plain if context is None else context.wrap_socket(plain, server_hostname=host)
    except OSError as error:
        plain.close()
        raise NotConnected(failure_reason(error, security)) from error
    try:
        if security.has_login:
            _log_in(connection, security)
    except BaseException:
        connection.close()
        raise
    return connection


def ask(connection: socket.socket, security: Security, key: int, version: int, body: bytes) -> memoryview:
    """Send a request whose header has no tags, and return its answer after the correlation id. NotConnected."""
    head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + _CORRELATION_ID.to_bytes(4, "big") + b"\0\x05check"
    frame = head + body
    try:
        connection.sendall(len(frame).to_bytes(4, "big") + frame)
        first = _exactly(connection, 4, security)
        size = int.from_bytes(first, "big")
        if answers_in_tls(first):
            raise NotConnected(WANTS_TLS)
        if not 4 <= size <= ANSWER_BYTES_MAX:
            raise NotConnected(NO_KAFKA)
        answer = memoryview(_exactly(connection, size, security))
    except OSError as error:
        raise NotConnected(failure_reason(error, security)) from error
    if int.from_bytes(answer[:4], "big") != _CORRELATION_ID:
        raise NotConnected(NO_KAFKA)
    return answer[4:]


def failure_reason(error: OSError, security: Security) -> str:
    """Return why a connection failed; a peer that refuses the certificate of a client that showed none wants one."""
    said = explain(error)
    return WANTS_CERTIFICATE if security.cert_file is None and "this client's certificate" in said else said


def answers_in_tls(first: bytes | bytearray) -> bool:
    """Return whether an answer begins as an alert of TLS, of a peer that wanted a handshake (RFC 8446, section 5.1)."""
    return first[:2] == b"\x15\x03"


def brokers(connection: socket.socket, security: Security) -> list[tuple[int, str, int]]:
    """Id, host and port of each broker of the cluster, as they advertise them. NotConnected."""
    request = b"\0\0\0\0" + b"\0\0\0"  # no topics; create none, tell no rights
    answer = _Reader(ask(connection, security, METADATA, METADATA_VERSION, request))
    answer.number(4)  # throttle time
    found = []
    for _ in range(answer.number(4)):
        found.append((answer.number(4), answer.text(), answer.number(4)))
        answer.text()  # rack
    return found


def try_cluster(name: str, security: Security, servers: list[str]) -> Iterator[End]:
    """Try each bootstrap server, HOST:PORT; of the first that answers also its brokers, at the addresses they give."""
    told = False
    for server in servers:
        end = f"{name} {server}"
        try:
            with open_connection(security, *host_and_port(server)) as connection:
                found = brokers(connection, security)
        except NotConnected as trouble:
            yield End(end, str(trouble))
            continue
        yield End(end, None)
        if not told:
            told = True
            yield from _try_brokers(name, security, found, servers)


def open_connection(security: Security, host: str, port: int) -> socket.socket:
    """Return the same as `connect`; also TCP's errors are NotConnected."""
    try:
        return connect(security, host, port)
    except OSError as error:
        raise NotConnected(explain(error)) from error


def trouble(security: Security, servers: list[str]) -> str | None:
    """Return why none of the servers can be connected to, HOST:PORT before each reason; None where one can."""
    found = []
    for server in servers:
        try:
            open_connection(security, *host_and_port(server)).close()
        except NotConnected as why:
            found.append(f"{server} {why}")
        else:
            return None
    return "; ".join(found)


def _try_brokers(name: str, security: Security, found: list[tuple[int, str, int]], servers: list[str]) -> Iterator[End]:
    given = {host_and_port(server) for server in servers}
    for node, host, port in found:
        if (host, port) in given:
            continue
        end = f"{name} broker {node} at {host}:{port}, the address that it advertises,"
        try:
            open_connection(security, host, port).close()
            yield End(end, None)
        except NotConnected as why:
            yield End(end, str(why))


def _log_in(connection: socket.socket, security: Security) -> None:
    mechanism = security.mechanism.encode()
    answer = _Reader(ask(connection, security, SASL_HANDSHAKE, 1, len(mechanism).to_bytes(2, "big") + mechanism))
    code = answer.number(2)
    known = [answer.text() for _ in range(min(answer.number(4), 16))] if code == UNSUPPORTED_SASL_MECHANISM else []
    check_mechanism(code, known, security)
    exchange = login_tokens(security)
    token = next(exchange)
    with suppress(StopIteration):
        while True:
            token = exchange.send(_authenticate(connection, security, token))


def login_tokens(security: Security) -> Generator[bytes, bytes, None]:
    """Yield the tokens of an authentication, receive the answers; read and hash the password. NotConnected."""
    import secrets  # noqa: PLC0415 - both only for those who log in

    from drupelet.kafka.sasl_login import LogInError, tokens  # noqa: PLC0415

    try:
        password = "" if security.password is None else security.password.text()
    except ConfigurationError as error:
        raise NotConnected(f"is not logged in to, as {error}") from error
    try:
        yield from tokens(security.mechanism, security.username, password, secrets.token_urlsafe(24))
    except LogInError as error:
        raise NotConnected(str(error)) from error


def check_mechanism(code: int, known: Sequence[str], security: Security) -> None:
    """Check the answer to SaslHandshake: its error code, and the broker's mechanisms. NotConnected."""
    if code == UNSUPPORTED_SASL_MECHANISM:
        by = " or ".join(known) or "none"
        raise NotConnected(f"takes no log-in by {security.mechanism}, but by {by}: set sasl_mechanism")
    if code == ILLEGAL_SASL_STATE:
        other = "SSL" if security.has_tls else "PLAINTEXT"
        raise NotConnected(f"wants no log-in on that port: set security_protocol to {other}, or mend the port")
    if code:
        raise NotConnected(f"refuses a log-in with error {code}")


def check_login(code: int, said: str, security: Security) -> None:
    """Check the answer to SaslAuthenticate: its error code, and the broker's message. NotConnected."""
    if code:
        where = f" in {security.password_name}" if security.password_name else ""
        reason = f" ({peer_text(said)})" if said and "credentials" not in said else ""
        raise NotConnected(
            f"refuses the user {security.username!r} by {security.mechanism}{reason}:"
            f" is the user known there, and the password{where} right?"
        )


def _authenticate(connection: socket.socket, security: Security, token: bytes) -> bytes:
    body = len(token).to_bytes(4, "big") + token
    answer = _Reader(ask(connection, security, SASL_AUTHENTICATE, 1, body))
    check_login(answer.number(2), answer.text(), security)
    return answer.data()


def _exactly(connection: socket.socket, size: int, security: Security) -> bytes:
    got = bytearray()
    while len(got) < size:
        part = connection.recv(min(size - len(got), 65_536))
        if not part:
            raise NotConnected(hung_up(security))
        got += part
    return bytes(got)


def hung_up(security: Security) -> str:
    """Return why a broker may have closed the connection before it answered."""
    if not security.has_tls:
        wants = "TLS" if security.has_login else "TLS, or a log-in"
        return f"hung up without an answer: does it want {wants} (security_protocol), or is it another service?"
    if security.cert_file is None and not security.has_login:
        return "hung up after the TLS handshake: does it want a log-in, or a client certificate (ssl_cert_file)?"
    return "hung up after the TLS handshake: does it believe the client certificate, and take log-ins on that port?"


class _Reader:
    """Reads an answer's fields, one after the other; NotConnected where it has fewer."""

    def __init__(self, content: memoryview) -> None:
        self._content, self._at = content, 0

    def number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big", signed=True)

    def text(self) -> str:
        return bytes(self._take(max(0, self.number(2)))).decode("utf-8", "replace")

    def data(self) -> bytes:
        return bytes(self._take(max(0, self.number(4))))

    def _take(self, size: int) -> memoryview:
        if self._at + size > len(self._content):
            raise NotConnected(NO_KAFKA)
        self._at += size
        return self._content[self._at - size : self._at]
