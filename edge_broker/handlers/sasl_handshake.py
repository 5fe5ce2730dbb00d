"""SaslHandshake (key 17): the mechanism by which the client of a SASL listener is about to log in, at first or again.

Does not contain: what a log-in is (security/sasl.py). Source: SaslHandshake 0 to 1, KIP-43, KIP-152, KIP-368.
"""

from __future__ import annotations

from edge_broker.broker.api import ServedApi
from edge_broker.broker.broker import Broker
from edge_broker.broker.context import RequestContext
from edge_broker.broker.outcomes import Outcome, Reply
from edge_broker.errors import ErrorCode
from edge_broker.protocol.api import SASL_HANDSHAKE
from edge_broker.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


@ServedApi(
    SASL_HANDSHAKE,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
    {0: "the mechanisms (KIP-43)", 1: "tokens in SaslAuthenticate (KIP-152)"},
    left_out="what follows version 0, tokens without SaslAuthenticate, as clients older than Kafka 1.0 send them: "
    "their connections are closed; Kerberos (GSSAPI) and OAUTHBEARER: a board has neither a KDC nor a token service",
)
def sasl_handshake(broker: Broker, context: RequestContext, request: SaslHandshakeRequest) -> Outcome:
    """Take the mechanism, or close the connection; without authentication, or not now, as Kafka answers."""
    session, login = context.session, context.session.login
    if login is not None and login.in_exchange:
        broker.log_ins.note_failure(session, login.mechanism, "", "a second handshake within the log-in")
        login.fail()
        return Reply(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE), closes=True)
    if login is None or not login.takes_handshake():
        return Reply(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))
    enabled = list(login.sessions_ms)
    if login.choose(request.mechanism, broker.clock.new_token(), raw=context.api_version == 0):
        return Reply(SaslHandshakeResponse(mechanisms=enabled))
    broker.log_ins.note_failure(session, request.mechanism, "", "the mechanism is not enabled")
    response = SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=enabled)
    return Reply(response, closes=True)
