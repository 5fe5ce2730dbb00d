"""The log-in of one connection, by SASL.

| state | request | next | answer |
|---|---|---|---|
| BEGIN | ApiVersions | BEGIN | as to everybody |
| BEGIN | SaslHandshake, an enabled mechanism | EXCHANGE | the enabled mechanisms |
| BEGIN | SaslHandshake, another | FAILED | the same, with UNSUPPORTED_SASL_MECHANISM |
| EXCHANGE | SaslAuthenticate, more to come | EXCHANGE | the mechanism's challenge |
| EXCHANGE | SaslAuthenticate, right | COMPLETE | how long the session lasts |
| EXCHANGE | SaslAuthenticate, wrong | FAILED | SASL_AUTHENTICATION_FAILED, late |
| EXCHANGE | SaslHandshake | FAILED | ILLEGAL_SASL_STATE |
| COMPLETE | SaslHandshake where sessions end | EXCHANGE | as at first; user and mechanism must stay |
| COMPLETE | any other, before the session's end | COMPLETE | whatever it is |
| COMPLETE | any other, after it | FAILED | none |
| any | any other | FAILED | none |

FAILED closes the connection.

Contains: the state, and PLAIN. Does not contain: SCRAM's messages (scram.py), clocks, who is waiting.
Source: Kafka's SaslServerAuthenticator and PlainSaslServer, KIP-43, KIP-152, KIP-368, RFC 4616.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from edge_broker.protocol.api import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from edge_broker.security.scram import (
    AUTHORIZATION_ID,
    MECHANISMS,
    MESSAGE_BYTES_MAX,
    CredentialLookup,
    LogInFailed,
    ScramExchange,
    Success,
    is_password,
    salt_password,
)

PLAIN = "PLAIN"
WRONG_PASSWORD = "Authentication failed: Invalid username or password"  # noqa: S105 - Kafka's sentence


class LoginState(IntEnum):
    """How far a connection's log-in is."""

    BEGIN = 0
    EXCHANGE = 1
    COMPLETE = 2
    FAILED = 3


class PlainMessage(NamedTuple):
    """The message of a client with PLAIN."""

    authorization_id: str
    user: str
    password: bytes


class PlainExchange:
    """PLAIN, whose one message has the password itself."""

    __slots__ = ("user",)

    def __init__(self) -> None:
        self.user = ""

    def read(self, data: bytes) -> PlainMessage:
        """Decode the message; LogInFailed if it is none of PLAIN."""
        message = read_plain(data)
        self.user = message.user
        return message


def read_plain(data: bytes) -> PlainMessage:
    """The parts of PLAIN's message; LogInFailed."""
    parts = data.split(b"\0", 3)
    if len(parts) != 3:
        raise LogInFailed(
            "the message is none of PLAIN's", f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
        )
    if len(data) > MESSAGE_BYTES_MAX:
        raise LogInFailed("the message is too long", WRONG_PASSWORD)
    authorization_id, user = (part.decode(errors="replace") for part in parts[:2])  # no UTF-8: a user that is not there
    if not user:
        raise LogInFailed("no user", "Authentication failed: username not specified")
    if not parts[2]:
        raise LogInFailed("no password", "Authentication failed: password not specified")
    return PlainMessage(authorization_id, user, parts[2])


class Trial(NamedTuple):
    """A password is tried by this mechanism, and hashed so often in all, however often the credential found says."""

    mechanism: str
    found: CredentialLookup
    iterations: int

    def is_password(self, password: bytes) -> bool:
        """Whether it is the one that the credential was made of."""
        mechanism, credential = MECHANISMS[self.mechanism], self.found.credential
        right = is_password(mechanism, password, credential)
        more = self.iterations - credential.iterations
        if more > 0:
            salt_password(mechanism, password, credential.salt, more)
        return right


def check_plain(message: PlainMessage, trials: Sequence[Trial]) -> Success:
    """Verify the password against what SCRAM keeps of it; LogInFailed.

    Of a user's credentials the first is what counts. Every trial is made for any user, so that the work shows
    neither whether the user exists nor its credentials.
    """
    results = [(trial.is_password(message.password), trial.found.known) for trial in trials]
    right, known = next((result for result in results if result[1]), (False, False))
    if not right:
        raise LogInFailed("wrong password" if known else "no such user", WRONG_PASSWORD)
    if message.authorization_id not in ("", message.user):
        raise LogInFailed("another authorization id", AUTHORIZATION_ID)
    return Success(message.user, b"")


class Login:
    """The log-in of one connection; `user` is empty until the first one is complete.

    `sessions_ms` says of each enabled mechanism how long its sessions last, 0 for ever; `session_ms` is that of the one
    that was chosen. `barred`: a request has to be looked at before it is served.
    """

    __slots__ = (
        "asked",
        "barred",
        "ends_ms",
        "exchange",
        "mechanism",
        "raw",
        "session_ms",
        "sessions_ms",
        "state",
        "user",
    )

    def __init__(self, sessions_ms: Mapping[str, int]) -> None:
        self.sessions_ms = sessions_ms
        self.session_ms = 0
        self.state = LoginState.BEGIN
        self.barred = True
        self.user = ""
        self.mechanism = ""
        self.asked = ""
        self.exchange: ScramExchange | PlainExchange | None = None
        self.raw = False
        self.ends_ms = 0

    @property
    def is_repeated(self) -> bool:
        """Whether a client has authenticated on this connection before."""
        return bool(self.user)

    def refusal(self, api_key: int, now_ms: int) -> str:
        """Why a request of this API ends the connection, in one sentence; empty when it is served."""
        if self.state == LoginState.COMPLETE:
            if self.ends_ms and now_ms >= self.ends_ms and api_key != SASL_HANDSHAKE:
                return "its session is over, and the client has not logged in again (connections.max.reauth.ms)"
            return ""
        if self.state == LoginState.BEGIN and api_key in (API_VERSIONS, SASL_HANDSHAKE):
            return ""
        if self.in_exchange and api_key in (SASL_HANDSHAKE, SASL_AUTHENTICATE) and not self.raw:
            return ""
        if self.raw:
            return "the client logs in as before Kafka 1.0, without SaslAuthenticate; use a newer client"
        return f"the client has not logged in, and sent a request of API key {api_key}"

    @property
    def in_exchange(self) -> bool:
        """Whether a message of the mechanism is due."""
        return self.state == LoginState.EXCHANGE

    def takes_handshake(self) -> bool:
        """Whether a log-in may begin now."""
        return self.state == LoginState.BEGIN or (self.state == LoginState.COMPLETE and self.ends_ms > 0)

    def choose(self, mechanism: str, nonce: str, *, raw: bool) -> bool:
        """Begin a log-in by this mechanism; False when it is not enabled, and the log-in has failed. `raw`: old style.

        Another mechanism than the one before gets its error at the next request; Kafka closes there without a word.
        """
        if mechanism not in self.sessions_ms:
            self.fail()
            return False
        self.asked = mechanism
        self.exchange = PlainExchange() if mechanism == PLAIN else ScramExchange(MECHANISMS[mechanism], nonce)
        if not self.is_repeated:
            self.mechanism = mechanism
            self.session_ms = self.sessions_ms[mechanism]
        elif self.mechanism != mechanism:
            self.exchange = None
        self.raw = raw
        self.state = LoginState.EXCHANGE
        self.barred = True
        return True

    def scram(self) -> ScramExchange:
        """The exchange of SCRAM; LogInFailed when the client has chosen another mechanism than the one before."""
        if isinstance(self.exchange, ScramExchange):
            return self.exchange
        told = (
            f"SASL mechanism '{self.asked}' requested by client is not supported for re-authentication of mechanism "
            f"'{self.mechanism}'"
        )
        raise LogInFailed("another mechanism than before", told)

    def check_same(self, user: str) -> None:
        """Check that a client logs in again as the same user; LogInFailed."""
        if self.is_repeated and user != self.user:
            told = f"Cannot change principals during re-authentication from User.{self.user}: User.{user}"
            raise LogInFailed("another user than before", told)

    def complete(self, user: str, now_ms: int) -> None:
        """The client is this user from now on."""
        assert self.in_exchange, "a log-in that has failed is over"
        self.state, self.user, self.exchange = LoginState.COMPLETE, user, None
        self.ends_ms = now_ms + self.session_ms if self.session_ms else 0
        self.barred = self.ends_ms > 0

    def fail(self) -> None:
        """The connection is about to be closed."""
        self.state, self.exchange, self.barred = LoginState.FAILED, None, True
