"""A log-in's road through one broker, over as many connections as it needs.

Must never come in: which log-ins there are (test_log_ins.py), how two brokers compare (judging.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import API_VERSIONS, METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE
from edge_broker.protocol.messages.api_versions import ApiVersionsRequest
from edge_broker.protocol.messages.metadata import MetadataRequest
from edge_broker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from edge_broker.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.differential.secured import PASSWORDS
from tests.differential.session import CLOSED, Asked, Session
from tests.differential.trees import CLIENT_NONCE
from tests.differential.wire import ClosedError
from tests.support.scram import ScramClient, plain

LISTENER = "LOGIN"
MECHANISM = "SCRAM-SHA-256"


class LogIn(Session):
    """What is asked goes over one connection at a time; `roads` has what was asked over each."""

    def __init__(self, addresses: Mapping[str, str], case: str) -> None:
        super().__init__(addresses[LISTENER], case)
        self._addresses = addresses
        self._name = ""
        self.roads: list[list[Asked]] = []

    @contextmanager
    def connection(self, label: str, listener: str = LISTENER, *, keep: bool = False) -> Iterator[None]:
        """Another connection; the broker may close it, which ends the block. It ends with the block unless kept."""
        self.bootstrap, self._name = self._addresses[listener], f"{label}, {len(self.roads)}"
        self.asked = []
        self.roads.append(self.asked)
        try:
            yield
        except ClosedError:
            assert self.asked[-1].answer == CLOSED
        if not keep:
            self.on(self._name).close()

    def request(self, key: int, request: Any, version: int, label: str) -> Any:
        """Ask; the answer, ClosedError when the connection was closed instead."""
        return self.ask(key, request, version, on=self._name, label=f"{self._name}: {label}")

    def body(self, key: int, body: bytes, version: int, label: str) -> Any:
        """Ask by a body that may be no request."""
        self.on(self._name).send_body(key, body, version)
        return self.receive(key, version, on=self._name, label=f"{self._name}: {label}")

    def raw(self, data: bytes, label: str) -> bytes:
        """Send bytes as they are; the next frame, which is kept as it is."""
        connection = self.on(self._name)
        connection.send_bytes(data)
        title = f"{len(self.asked) + 1} raw {self._name}: {label}"
        try:
            answer = connection.receive_frame()
        except ClosedError:
            self.asked.append(Asked(title, CLOSED))
            raise
        self.asked.append(Asked(title, answer.hex()))
        return answer

    def api_versions(self, version: int, *, software: str = "differential") -> Any:
        """Ask what is served."""
        wanted = ApiVersionsRequest(client_software_name=software, client_software_version="1")
        return self.request(API_VERSIONS, wanted, version, "")

    def handshake(self, mechanism: str, version: int = 1) -> Any:
        """Choose a mechanism."""
        return self.request(SASL_HANDSHAKE, SaslHandshakeRequest(mechanism=mechanism), version, repr(mechanism)[:40])

    def token(self, data: bytes, version: int = 2) -> bytes:
        """Send a message of the mechanism; the broker's. What it says is compared, too."""
        request = SaslAuthenticateRequest(auth_bytes=data)
        answer = self.request(SASL_AUTHENTICATE, request, version, repr(data)[:60])
        self.note(f"sentence {self._name}", answer.error_message)
        return bytes(answer.auth_bytes) if answer.error_code == ErrorCode.NONE else b""

    def plain(self, user: str, password: str | None = None, version: int = 2) -> None:
        """Send a user's password, his own unless another is given."""
        self.token(plain(user, PASSWORDS.get(user, "") if password is None else password), version)

    def scram(self, mechanism: str, user: str, password: str | None = None, **parts: str) -> None:
        """Both messages of SCRAM, and whether the broker has proved that it knows the user."""
        known = PASSWORDS.get(user, "") if password is None else password
        client = ScramClient(mechanism, user, known, CLIENT_NONCE, **parts)
        first = self.token(client.first)
        if first and (final := self.token(client.final(first))):
            self.note(f"verifies {self._name}", client.verifies(final))

    def log_in(self, mechanism: str, user: str, password: str | None = None) -> None:
        """Hand-shake and messages."""
        self.handshake(mechanism)
        self.messages(mechanism, user, password)

    def messages(self, mechanism: str, user: str, password: str | None = None) -> None:
        """The messages of a mechanism that was chosen."""
        if mechanism == "PLAIN":
            self.plain(user, password)
        else:
            self.scram(mechanism, user, password)

    def served(self) -> None:
        """Whether the connection is good for requests."""
        self.request(METADATA, MetadataRequest(topics=[], allow_auto_topic_creation=False), 8, "served")


def until_parted(ours: Sequence[Asked], kafka: Sequence[Asked]) -> tuple[Sequence[Asked], Sequence[Asked]]:
    """Both as far as they can be held against each other: behind another code or end each goes its own way."""
    for count, pair in enumerate(zip(ours, kafka, strict=False), 1):
        mine, theirs = (one.answer.get("error_code") if isinstance(one.answer, dict) else one.answer for one in pair)
        if mine != theirs:
            return ours[:count], kafka[:count]
    return ours, kafka
