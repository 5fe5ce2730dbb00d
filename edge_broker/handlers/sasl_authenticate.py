"""SaslAuthenticate (key 36): one message of a log-in; the last one makes the client somebody, or closes its connection.

A log-in that fails is answered late, at the same time after its request whatever was wrong with it. Must never come in:
the mechanisms (security/). Source: SaslAuthenticate 0 to 2, KIP-152, KIP-368.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from edge_broker.broker.api import Served
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext, Session
from edge_broker.broker.outcome import Do, Outcome, Reply, Wait
from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import SASL_AUTHENTICATE
from edge_broker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from edge_broker.security.sasl import WRONG_PASSWORD, Login, PlainExchange, check_plain
from edge_broker.security.scram import REPLACED, Challenge, LogInFailed, Success

Step: TypeAlias = Challenge | Success | LogInFailed
T = TypeVar("T")


@Served(
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
    late_ms = broker.clock.steady_ms() + broker.log_ins.delay_ms

    def taken(made: Step) -> Outcome:
        if isinstance(made, Challenge):
            return Reply(SaslAuthenticateResponse(auth_bytes=made.data))
        if isinstance(made, Success):
            user = made.user
            held = _step(lambda: broker.log_ins.complete(session, login, user))
            if not isinstance(held, LogInFailed):
                return Reply(SaslAuthenticateResponse(auth_bytes=made.data, session_lifetime_ms=login.session_ms))
            made = held
        return _failed(broker, session, login, made, late_ms)

    exchange, data = login.exchange, bytes(request.auth_bytes)
    if isinstance(exchange, PlainExchange):
        return _plain(broker, exchange, data, taken)
    find = broker.log_ins.finder(login.mechanism)
    return taken(_step(lambda: login.scram().step(data, find)))


def _step(take: Callable[[], T]) -> T | LogInFailed:
    """What comes of a message; a failure without its frames, which hold the message, and keep each other."""
    try:
        return take()
    except LogInFailed as failure:
        return LogInFailed(str(failure), failure.told)


def _plain(broker: Broker, exchange: PlainExchange, data: bytes, taken: Callable[[Step], Outcome]) -> Outcome:
    """Have a worker see whether the password is right."""
    message = _step(lambda: exchange.read(data))
    if isinstance(message, LogInFailed):
        return taken(message)
    trials = broker.log_ins.plain_trials(message.user)

    def work() -> Success | LogInFailed:
        return _step(lambda: check_plain(message, trials))

    def then(step: Success | LogInFailed) -> Outcome:
        replaced = isinstance(step, Success) and not broker.log_ins.hold(message.user, trials)
        return taken(LogInFailed(REPLACED, WRONG_PASSWORD) if replaced else step)

    return Do(work, then, lambda error: taken(LogInFailed(str(error))), worker="logins")


def _failed(broker: Broker, session: Session, login: Login, failure: LogInFailed, late_ms: int) -> Outcome:
    """Say that it failed, late, and close."""
    phase = "re-authentication" if login.again else "authentication"
    generic = f"Authentication failed during {phase} due to invalid credentials with SASL mechanism {login.mechanism}"
    user = login.exchange.user if login.exchange is not None else ""
    broker.log_ins.refused(session, login.mechanism, user, str(failure))
    login.fail()
    response = SaslAuthenticateResponse(
        error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=failure.told or generic
    )
    answer = Reply(response, closes=True)
    wait_ms = late_ms - broker.clock.steady_ms()
    if wait_ms <= 0:
        return answer
    return Wait((), lambda: None, wait_ms, lambda: answer)
