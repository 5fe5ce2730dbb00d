"""Prepare a connection for requests: TLS on its socket, then SASL, by the modules of drupelet.

A thread reads files and passwords again each time, and hashes. Does not contain: own sentences about a refusal,
sockets, the time of a re-authentication. Source: KIP-43, KIP-152, KIP-368.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from drupelet.errors import ConfigurationError
from drupelet.kafka.connection import NotConnected, check_login, check_mechanism, failure_reason, login_tokens
from drupelet.kafka.connection_errors import HUNG_UP_IN_TLS
from drupelet.kafka.security import Security
from edge_broker.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from edge_broker.protocol.messages.sasl_handshake import SaslHandshakeResponse

HANDSHAKE_S_MAX = 3600.0  # never reached: the caller bounds the time, in words of its own
APART_S = 0.05
"""Between two sends over TLS before authentication is done, if the second does not wait for a response.

Data that Apache Kafka decrypted with the previous request waits there until another event wakes its selector, up to 0.3
s. Only reads from a ready channel count as progress, after which it polls again at once (Selector.poll).
"""

Authenticate = Callable[[bytes], Awaitable[SaslAuthenticateResponse]]


async def tls_context(security: Security) -> Any:
    """Return the ssl.SSLContext of a connection, None without TLS. Raises NotConnected if a file cannot be used."""
    if not security.has_tls:
        return None
    try:
        return await asyncio.to_thread(security.context)
    except ConfigurationError as error:
        raise NotConnected(f"is not tried, as {error}") from error


async def start_tls(
    transport: asyncio.Transport, protocol: asyncio.BufferedProtocol, context: Any, security: Security, host: str
) -> asyncio.Transport:
    """Return the transport by which `protocol` speaks TLS over `transport`. Raises NotConnected."""
    try:
        made = await asyncio.get_running_loop().start_tls(
            transport, protocol, context, server_hostname=host, ssl_handshake_timeout=HANDSHAKE_S_MAX
        )
    except ConnectionError as error:  # asyncio's own, without a number, for a peer that hangs up
        raise NotConnected(HUNG_UP_IN_TLS if error.errno is None else failure_reason(error, security)) from error
    except TimeoutError:
        raise
    except OSError as error:
        raise NotConnected(failure_reason(error, security)) from error
    if made is None:
        raise NotConnected(HUNG_UP_IN_TLS)
    return made


async def apart(answer: asyncio.Future[Any], security: Security) -> None:
    """Wait until the next request may go before authentication is done; no longer than for this response."""
    if security.has_tls:
        await asyncio.wait([answer], timeout=APART_S)


async def log_in(
    handshake: asyncio.Future[SaslHandshakeResponse], authenticate: Authenticate, security: Security
) -> int:
    """Authenticate after SaslHandshake was sent; return milliseconds until reauthentication, 0: never. NotConnected.

    `authenticate` sends a token at once and returns its future response. The first token of SCRAM goes before the
    handshake's response, as a round trip may take a second and that token has no secret; PLAIN's is the password.
    """
    exchange = login_tokens(security)

    def step(answer: bytes | None) -> bytes | None:
        try:
            return next(exchange) if answer is None else exchange.send(answer)
        except StopIteration:
            return None

    lifetime_ms = 0
    token = await asyncio.to_thread(step, None)
    early = None
    if token is not None and security.mechanism != "PLAIN":
        await apart(handshake, security)
        early = authenticate(token)
    shaken = await handshake
    check_mechanism(shaken.error_code, shaken.mechanisms, security)
    while token is not None:
        answer = await (early or authenticate(token))
        early = None
        check_login(answer.error_code, answer.error_message or "", security)
        lifetime_ms = answer.session_lifetime_ms
        token = await asyncio.to_thread(step, answer.auth_bytes)
    return lifetime_ms
