"""A blocking client that logs in as clients do, over TLS or not, with one request under way at a time."""

from __future__ import annotations

import socket
import ssl
from typing import Any

from edge_broker.handlers import APIS
from edge_broker.protocol.api import SASL_AUTHENTICATE, SASL_HANDSHAKE
from edge_broker.protocol.codec import decode, encode
from edge_broker.protocol.message import Message
from edge_broker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from edge_broker.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.support.raw_client import TIMEOUT_S
from tests.support.scram import ScramClient, plain


class RefusedError(ConnectionError):
    """The broker has closed, or says that the log-in has failed."""


class LoginClient:
    """One connection to this machine, from the address `source` where that matters."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None, source: str = "") -> None:
        sock = socket.create_connection(("127.0.0.1", port), TIMEOUT_S, (source, 0))
        self._socket = sock if context is None else context.wrap_socket(sock, server_hostname="localhost")

    def __enter__(self) -> LoginClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, key: int, version: int, message: Message) -> Any:
        """One request and its answer."""
        flexible = version >= APIS[key].flexible_from
        head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\1\0\1c" + (b"\0" if flexible else b"")
        frame = head + b"".join(encode(message, version))
        self._socket.sendall(len(frame).to_bytes(4, "big") + frame)
        answer = self._exactly(int.from_bytes(self._exactly(4), "big"))
        return decode(APIS[key].response, version, memoryview(answer), 5 if flexible else 4)

    def _exactly(self, size: int) -> bytes:
        got = b""
        while len(got) < size:
            part = self._socket.recv(size - len(got))
            if not part:
                raise RefusedError("the broker closed the connection")
            got += part
        return got

    def log_in(self, mechanism: str, user: str, password: str) -> None:
        """Log in; RefusedError."""
        self.ask(SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism=mechanism))
        if mechanism == "PLAIN":
            self._token(plain(user, password))
            return
        scram = ScramClient(mechanism, user, password)
        if not scram.verifies(self._token(scram.final(self._token(scram.first)))):
            raise RefusedError("the broker does not know the password itself")

    def _token(self, data: bytes) -> bytes:
        answer = self.ask(SASL_AUTHENTICATE, 1, SaslAuthenticateRequest(auth_bytes=data))
        if answer.error_code:
            raise RefusedError(f"the log-in has failed: {answer.error_message}")
        return bytes(answer.auth_bytes)
