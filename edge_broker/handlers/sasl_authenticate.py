"""SaslAuthenticate (key 36): one message of a log-in; the last one authenticates the client, or closes its connection.

A log-in that fails is answered late, at the same time after its request whatever was wrong with it; after many
failures the next one waits before it is looked at (security/failure_delays.py). Does not contain: the mechanisms
(security/). Source: SaslAuthenticate 0 to 2, KIP-152, KIP-368.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext, Session
from edge_broker.broker.outcomes import Outcome, Reply, RunInWorker, Wait
from edge_broker.errors import ErrorCode, ProtocolViolation
from edge_broker.protocol.api import SASL_AUTHENTICATE
from edge_broker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from edge_broker.security.failure_delays import TooMany
from edge_broker.security.sasl import WRONG_PASSWORD, Login, PlainExchange, PlainMessage, check_plain
from edge_broker.security.scram import REPLACED, Challenge, LogInFailed, ScramExchange, Success

Step: TypeAlias = Challenge | Success | LogInFailed
T = TypeVar("T")


@ServedApi(
    SASL_AUTHENTICATE,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    {
        0: "a mechanism's message (KIP-152)",
        1: "the session's lifetime (KIP-368)",
        2: "compact lengths, tags (KIP-482)",
    },
    left_out="the SCRAM extension tokenauth: there are no delegation tokens",
)
def sasl_authenticate(broker: Broker, context: RequestContext, request: SaslAuthenticateRequest) -> Outcome:
    """Take the next message of the mechanism that was chosen."""
    session, login = context.session, context.session.login
    if login is None or not login.in_exchange:
        message = "SaslAuthenticate request received after successful authentication"
        return Reply(SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message))
    exchange, data = login.exchange, bytes(request.auth_bytes)
    if isinstance(exchange, PlainExchange):
        given = _step(lambda: exchange.read(data))
        if isinstance(given, LogInFailed):
            return _Attempt(broker, session, login).step_taken(given)
        return _in_turn(broker, session, login, given.user, lambda attempt: _plain(broker, given, attempt.step_taken))

    def scram(attempt: _Attempt) -> Outcome:
        find = broker.log_ins.finder(login.mechanism)
        return attempt.step_taken(_step(lambda: login.scram().step(data, find)))

    if isinstance(exchange, ScramExchange) and exchange.shows_proof(data):
        return _in_turn(broker, session, login, exchange.user, scram)
    return scram(_Attempt(broker, session, login))


class _Attempt:
    """One message that is looked at now: a failure is answered at the same time, whatever was wrong."""

    def __init__(self, broker: Broker, session: Session, login: Login, user: str = "") -> None:
        """`user` is whose password or proof it is, empty for a message that has neither."""
        self._broker, self._session, self._login, self._user = broker, session, login, user
        self._late_ms = broker.clock.steady_ms() + broker.log_ins.delay_ms

    def step_taken(self, made: Step) -> Outcome:
        """Answer with what the mechanism has made of the message."""
        broker, session, login = self._broker, self._session, self._login
        if isinstance(made, Challenge):
            return Reply(SaslAuthenticateResponse(auth_bytes=made.data))
        if isinstance(made, Success):
            user = made.user
            held = _step(lambda: broker.log_ins.complete(session, login, user))
            if not isinstance(held, LogInFailed):
                return Reply(SaslAuthenticateResponse(auth_bytes=made.data, session_lifetime_ms=login.session_ms))
            made = held
        if self._user:
            broker.log_ins.delays.login_failed(self._user, session.host, broker.clock.steady_ms())
        return _refuse_login(broker, session, login, made, self._late_ms)


def _in_turn(
    broker: Broker, session: Session, login: Login, user: str, look_at: Callable[[_Attempt], Outcome]
) -> Outcome:
    """Look at a password or proof once it is its turn: after failures it waits, on its connection alone.

    Where too many wait the connection is closed without an answer: clients try again then, and take a failed log-in
    for final.
    """
    try:
        wait_ms = broker.log_ins.delays.admit(user, session.host, broker.clock.steady_ms())
    except TooMany:
        broker.log_ins.note_failure(
            session, login.mechanism, user, "too many log-ins as this user from this address wait"
        )
        login.fail()
        raise ProtocolViolation("too many log-ins as one user from this address wait after failed ones") from None
    if not wait_ms:
        return look_at(_Attempt(broker, session, login, user))
    broker.log_ins.note_delay(session, user, wait_ms)
    return Wait((), lambda: None, wait_ms, lambda: look_at(_Attempt(broker, session, login, user)))


def _step(take: Callable[[], T]) -> T | LogInFailed:
    """Return the result of a message; a failure without its frames, which hold the message, and keep each other."""
    try:
        return take()
    except LogInFailed as failure:
        return LogInFailed(str(failure), failure.told)


def _plain(broker: Broker, message: PlainMessage, taken: Callable[[Step], Outcome]) -> Outcome:
    """Have a worker see whether the password is right."""
    trials = broker.log_ins.plain_trials(message.user)

    def work() -> Success | LogInFailed:
        return _step(lambda: check_plain(message, trials))

    def then(step: Success | LogInFailed) -> Outcome:
        replaced = isinstance(step, Success) and not broker.log_ins.hold(message.user, trials)
        return taken(LogInFailed(REPLACED, WRONG_PASSWORD) if replaced else step)

    return RunInWorker(work, then, lambda error: taken(LogInFailed(str(error))), worker="logins")


def _refuse_login(broker: Broker, session: Session, login: Login, failure: LogInFailed, late_ms: int) -> Outcome:
    """Say that it failed, late, and close."""
    phase = "re-authentication" if login.is_repeated else "authentication"
    generic = f"Authentication failed during {phase} due to invalid credentials with SASL mechanism {login.mechanism}"
    user = login.exchange.user if login.exchange is not None else ""
    broker.log_ins.note_failure(session, login.mechanism, user, str(failure))
    login.fail()
    response = SaslAuthenticateResponse(
        error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=failure.told or generic
    )
    answer = Reply(response, closes=True)
    wait_ms = late_ms - broker.clock.steady_ms()
    if wait_ms <= 0:
        return answer
    return Wait((), lambda: None, wait_ms, lambda: answer)
