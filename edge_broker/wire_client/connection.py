"""One connection to one broker: a request goes out, its answer comes back, within a time and a size.

Contains: the socket, frames, the choice of versions, and the sentences about a broker that does not answer.
Does not contain: what is asked, how TLS and authentication go (drupelet.kafka.connection).
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import NoReturn, TypeVar

from drupelet.errors import reason
from drupelet.kafka.connection import NotConnected, answers_in_tls, connect, failure_reason
from drupelet.kafka.properties import in_kafkas_names
from drupelet.kafka.security import Security
from edge_broker.errors import ProtocolViolation
from edge_broker.protocol.api import API_VERSIONS as API_VERSIONS_KEY
from edge_broker.protocol.api import RequestedApi
from edge_broker.protocol.codec import decode, encode, skip_tags
from edge_broker.protocol.message import Message
from edge_broker.protocol.messages.api_versions import ApiVersionsRequest
from edge_broker.wire_client.apis import API_VERSIONS

CLIENT_ID = b"edge-broker-tools"
ANSWER_BYTES_MAX = 128 * 1024 * 1024  # hard bound on one answer, before anything is allocated
PIECE_BYTES = 1024 * 1024

R = TypeVar("R", bound=Message)


class WireFailure(Exception):
    """A failed request to the broker: one sentence for a person. `unreachable`: another attempt may do."""

    def __init__(self, message: str, *, unreachable: bool = False) -> None:
        super().__init__(message)
        self.unreachable = unreachable


class NotThere(WireFailure):
    """There is no topic or group of the name that was asked for: a mistake in the command."""


class Connection:
    """A connection whose broker has told what it serves. Every method raises WireFailure."""

    def __init__(self, host: str, port: int, timeout_s: float, security: Security, what: str = "") -> None:
        self.place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.what = what or f"no broker answers at {self.place}"
        self._timeout_s = timeout_s
        self._security = security
        self._id = 0
        self._socket = self._connect(host, port)
        self._served = {API_VERSIONS_KEY: (0, 0)}
        answer = self.ask(API_VERSIONS, ApiVersionsRequest())
        self._served |= {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}

    def close(self) -> None:
        """Let the connection go."""
        with suppress(OSError):
            self._socket.close()

    def serves(self, asked: RequestedApi[R]) -> bool:
        """Whether the broker has a version of this API that is asked."""
        return self._version(asked) is not None

    def ask(self, asked: RequestedApi[R], request: Message) -> R:
        """Send a request in the newest version that both sides have, and wait for its answer."""
        version = self._version(asked)
        if version is None:
            raise WireFailure(f"the broker at {self.place} does not serve {asked.api.name} in a version known here")
        self._id += 1
        try:
            self._send(asked.api.key, version, asked.api.flexible_from, request)
            frame = self._frame()
        except TimeoutError:
            raise self._failure(f"{self.place} did not answer within {self._timeout_s:g} s") from None
        except OSError as error:
            raise self._broken_connection(error) from None
        return self._decode(asked, version, frame)

    def _connect(self, host: str, port: int) -> socket.socket:
        try:
            return connect(self._security, host, port, self._timeout_s)
        except NotConnected as error:
            raise WireFailure(f"the broker at {self.place} {in_kafkas_names(str(error))}") from None
        except TimeoutError:
            raise self._failure(f"{self.what}: not within {self._timeout_s:g} s") from None
        except OSError as error:
            raise self._failure(f"{self.what}: {reason(error)}") from None
        except UnicodeError:
            raise self._failure(f"{self.what}: that is no name of a host") from None

    def _broken_connection(self, error: OSError) -> WireFailure:
        if getattr(error, "reason", None):  # of an SSLError: what the peer said in TLS, as a rule of our certificate
            return WireFailure(f"the broker at {self.place} {in_kafkas_names(failure_reason(error, self._security))}")
        return self._failure(f"the connection to {self.place} broke: {reason(error)}")

    def _failure(self, sentence: str) -> WireFailure:
        return WireFailure(sentence, unreachable=True)

    def _version(self, asked: RequestedApi[R]) -> int | None:
        first, last = self._served.get(asked.api.key, (1, 0))
        version = min(last, asked.api.max_version)
        return version if version >= max(first, asked.api.min_version) else None

    def _send(self, key: int, version: int, flexible_from: int, request: Message) -> None:
        head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + self._id.to_bytes(4, "big")
        head += len(CLIENT_ID).to_bytes(2, "big") + CLIENT_ID + (b"\0" if version >= flexible_from else b"")
        body = head + b"".join(encode(request, version))
        self._socket.sendall(len(body).to_bytes(4, "big") + body)

    def _frame(self) -> memoryview:
        first = self._exactly(4)
        if not self._security.has_tls and answers_in_tls(first):
            raise WireFailure(f"the broker at {self.place} wants TLS on that port: name a file in --command-config")
        size = int.from_bytes(first, "big", signed=True)
        if not 4 <= size <= ANSWER_BYTES_MAX:
            self._no_kafka(f"an answer of {size} bytes")
        return memoryview(self._exactly(size))

    def _exactly(self, size: int) -> bytearray:
        """So many bytes, in memory that grows with what really came."""
        got = bytearray()
        while len(got) < size:
            piece = self._socket.recv(min(size - len(got), PIECE_BYTES))
            if not piece:
                raise self._failure(f"{self.place} closed the connection{self._what_it_may_want()}")
            got += piece
        return got

    def _what_it_may_want(self) -> str:
        """Explain why a broker may have closed the connection, as a listener closes on what it does not take."""
        if self._id <= 1:
            return ": it may speak no Kafka, or want TLS (--command-config)"
        return ": it may want a log-in (--command-config)" if self._id == 2 and not self._security.has_login else ""

    def _decode(self, asked: RequestedApi[R], version: int, frame: memoryview) -> R:
        if int.from_bytes(frame[:4], "big") != self._id:
            self._no_kafka("an answer to another request")
        try:
            flexible = version >= asked.api.flexible_from and asked.api.key != API_VERSIONS_KEY
            return decode(asked.response, version, frame, skip_tags(frame, 4) if flexible else 4)
        except (ProtocolViolation, IndexError) as error:
            self._no_kafka(str(error).rstrip("."))

    def _no_kafka(self, what: str) -> NoReturn:
        raise WireFailure(f"what listens at {self.place} does not speak the Kafka protocol: {what}")
