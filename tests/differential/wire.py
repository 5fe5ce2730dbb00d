"""A connection that sends one request as it is told, and reads one answer.

Lives here: framing and headers. Must never come in: clients' habits (retries, metadata, version choice), judgement.
Source: the Kafka protocol guide.
"""

from __future__ import annotations

import socket
import ssl
from types import TracebackType
from typing import Any, Self

from edge_broker.handlers import APIS
from edge_broker.protocol.api import API_VERSIONS
from edge_broker.protocol.codec import decode, encode
from edge_broker.protocol.message import Message

TIMEOUT_S = 30


class ClosedError(ConnectionError):
    """The broker closed the connection instead of answering."""


class Connection:
    """One TCP connection; requests may be sent before answers are read."""

    def __init__(self, bootstrap: str, *, timeout_s: float = TIMEOUT_S, context: ssl.SSLContext | None = None) -> None:
        """Connect to HOST:PORT, by TLS with a `context`."""
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        if context is not None:
            self._socket = context.wrap_socket(self._socket, server_hostname=host)
        self._sent: list[tuple[int, int]] = []
        self._read = 0

    def __enter__(self) -> Self:
        """Stay open as long as the block lasts."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Close without asking for what was not read."""
        self._socket.close()

    def send(self, key: int, request: Message, version: int, *, client_id: str = "differential") -> None:
        """Send a request by its declaration; Produce with acks=0 is the one that has no answer."""
        self.send_body(key, b"".join(encode(request, version)), version, client_id=client_id)
        if getattr(request, "acks", None) == 0:
            self._sent.pop()

    def send_body(self, key: int, body: bytes, version: int, *, client_id: str = "differential") -> None:
        """Send a request whose body may be anything."""
        name = client_id.encode()
        head = key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + len(self._sent).to_bytes(4, "big")
        head += len(name).to_bytes(2, "big") + name
        api = APIS.get(key)
        head += b"\0" if api is not None and version >= api.flexible_from else b""
        self._sent.append((key, version))
        self.send_frame(head + body)

    def send_frame(self, frame: bytes) -> None:
        """Send bytes with their size in front."""
        self.send_bytes(len(frame).to_bytes(4, "big") + frame)

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are; a broker that has closed already is met when reading."""
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
            return

    def receive(self) -> Any:
        """Read the answer to the oldest request without one; ClosedError when there is none to come."""
        frame = memoryview(self.receive_frame())
        key, version = self._sent[self._read]
        if int.from_bytes(frame[:4], "big") != self._read:
            raise AssertionError(f"answer {frame[:4].hex()} to request {self._read}")
        self._read += 1
        api = APIS[key]
        if key == API_VERSIONS and int.from_bytes(frame[4:6], "big") == 35:
            version = 0  # KIP-511: an unknown version is answered in the oldest form
        flexible = version >= api.flexible_from and key != API_VERSIONS
        return decode(api.response, version, frame, 5 if flexible else 4)

    def receive_frame(self) -> bytes:
        """Read the next frame, without its size."""
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def is_silent(self, seconds: float) -> bool:
        """True when nothing came for so long."""
        self._socket.settimeout(seconds)
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self._socket.settimeout(TIMEOUT_S)

    def _exactly(self, size: int) -> bytes:
        got = bytearray()
        while len(got) < size:
            try:
                part = self._socket.recv(size - len(got))
            except (ConnectionResetError, ssl.SSLError):  # as an alert comes that tells why
                part = b""
            if not part:
                raise ClosedError
            got += part
        return bytes(got)
