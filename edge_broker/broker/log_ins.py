"""Log-ins of this broker's sessions: with which credentials, what comes of them, and how many there were.

Lives here: what connects a session's log-in with the users that hold now. Must never come in: the messages of a log-in
(security/sasl.py, security/scram.py), who changes users (security.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from edge_broker.security.principals import USER
from edge_broker.security.sasl import Login
from edge_broker.security.scram import ITERATIONS_MIN, MECHANISMS, Find, Found, LogInFailed, false_credential
from edge_broker.security.state import SECRET_BYTES, SecurityState
from edge_broker.security_keys import MECHANISMS as SASL_MECHANISMS

if TYPE_CHECKING:
    from edge_broker.broker.context import Session
    from edge_broker.broker.effects import Effects
    from edge_broker.broker.security import Security
    from edge_broker.clock import Clock
    from edge_broker.config import BrokerConfig
    from edge_broker.listeners import Listener

NAME_CHARACTERS_LOGGED = 256
OTHER = "other"


class LogIns:
    """How sessions become users; owned by the loop.

    `succeeded`, `failed` count log-ins by mechanism, `expired` connections that were closed behind their session's end.
    """

    def __init__(self, config: BrokerConfig, clock: Clock, security: Security, effects: Effects) -> None:
        self.succeeded: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.expired = 0
        self.delay_ms = config.integer("connection.failed.authentication.delay.ms")
        self._config = config
        self._clock = clock
        self._security = security
        self._effects = effects
        self._secret = clock.new_bytes(SECRET_BYTES)  # until the store has one; it has no users then
        self._iterations_of: SecurityState | None = None
        self._iterations: dict[str, int] = {}

    def begin(self, session: Session, listener: Listener | None) -> None:
        """A connection of this listener is there; where clients log in, it may do nothing else yet."""
        if listener is not None and listener.logs_in:
            enabled = self._config.of_listener(listener.name, "sasl.enabled.mechanisms")
            session_ms = int(self._config.of_listener(listener.name, "connections.max.reauth.ms"))
            session.login = Login([word.strip() for word in enabled.split(",") if word.strip()], session_ms)

    def finder(self, mechanism: str) -> Find:
        """How to find the credentials for a mechanism: those of users that are not there are false, and stay the same.

        False ones have as many iterations as most have.
        """

        def find(user: str) -> Found:
            state = self._security.state
            credential = state.users.get(user, {}).get(mechanism)
            if credential is not None:
                return Found(credential, known=True)
            secret, iterations = state.secret or self._secret, self._false_iterations(state)[mechanism]
            return Found(false_credential(MECHANISMS[mechanism], user, secret, iterations), known=False)

        return find

    def _false_iterations(self, state: SecurityState) -> dict[str, int]:
        if self._iterations_of is not state:
            self._iterations_of = state
            held = list(state.users.values())
            self._iterations = {
                name: _commonest(one[name].iterations for one in held if name in one) for name in MECHANISMS
            }
        return self._iterations

    def plain_mechanism(self, user: str) -> str:
        """The mechanism whose credential a password is verified against."""
        return next(iter(self._security.state.users.get(user) or MECHANISMS))

    def complete(self, session: Session, login: Login, user: str) -> None:
        """A session is this user from now on; LogInFailed when he is gone, or when it was another's before."""
        login.check_same(user)
        if user not in self._security.state.users:
            raise LogInFailed("the user was removed meanwhile")
        event = "log-in-again" if login.again else "log-in"
        login.complete(user, self._clock.steady_ms())
        session.principal = USER + user
        self.succeeded[login.mechanism] += 1
        self._effects.audit(
            event, principal=session.principal, host=session.host, mechanism=login.mechanism, listener=session.listener
        )

    def changed(self, session: Session, user: str, mechanism: str, *, removed: bool) -> None:
        """Note that somebody has changed the credentials of a user."""
        self._effects.audit(
            "credential-removed" if removed else "credential-set",
            principal=session.principal,
            host=session.host,
            user=user[:NAME_CHARACTERS_LOGGED],
            mechanism=mechanism,
        )

    def refused(self, session: Session, mechanism: str, user: str, reason: str) -> None:
        """Count and note a log-in that failed; of what the client sent only names are among it."""
        self.failed[mechanism if mechanism in SASL_MECHANISMS else OTHER] += 1
        self._effects.audit(
            "log-in-failed",
            user=user[:NAME_CHARACTERS_LOGGED],
            host=session.host,
            mechanism=mechanism[:NAME_CHARACTERS_LOGGED],
            listener=session.listener,
            reason=reason,
        )


def _commonest(iterations: Iterable[int]) -> int:
    counts = Counter(iterations)
    return min(counts, key=lambda number: (-counts[number], number), default=ITERATIONS_MIN)
