"""Connections that have not logged in yet, or whose user is gone or denied.

| closed | when |
|---|---|
| without a log-in | LOGIN_S after it came |
| one that sends anything else before its log-in, or after its session's end | at once (security/sasl.py) |
| a user's that was removed | once that holds |
| whom the deny list denies, by a user or a certificate | once that holds, or when it comes |

Does not contain: what a log-in is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING

from edge_broker.errors import ProtocolViolation
from edge_broker.security.sasl import Login, LoginState

if TYPE_CHECKING:
    from edge_broker.broker.broker import Broker
    from edge_broker.network.connection.connection import Connection

LOGIN_S = 10.0
_DEADLINE = -2  # among the tokens of requests, which are none of these


class Logins:
    """The connections that must log in; owned by the loop. `connections` are those that are open."""

    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop) -> None:
        self.connections: Collection[Connection] = ()
        self._broker = broker
        self._loop = loop

    def connection_opened(self, connection: Connection) -> None:
        """A connection has come: where its listener has log-ins it has LOGIN_S for one."""
        session = connection.session
        if session.is_authenticated:
            self._broker.log_ins.came_by_certificate(session)
        self._broker.log_ins.begin(session, self._broker.listeners.get(session.listener))
        if session.login is not None:
            timer = self._loop.call_later(LOGIN_S, self._late, connection)
            connection.on_close[_DEADLINE] = timer.cancel

    def _late(self, connection: Connection) -> None:
        connection.on_close.pop(_DEADLINE, None)
        login = connection.session.login
        if login is not None and not login.user and login.state != LoginState.FAILED:
            connection.violate(ProtocolViolation(f"the client has not logged in within {LOGIN_S:.0f} s"))

    def admit(self, login: Login, api_key: int) -> None:
        """ProtocolViolation for a request that is not due."""
        refusal = login.refusal(api_key, self._broker.clock.steady_ms())
        if refusal:
            if login.state == LoginState.COMPLETE:
                self._broker.log_ins.expired += 1
            raise ProtocolViolation(refusal)

    def end(self, users: frozenset[str]) -> None:
        """Close the connections of users that are gone."""
        for connection in list(self.connections):
            login = connection.session.login
            if login is not None and login.user in users:
                connection.violate(ProtocolViolation("its user was removed"))

    def denial(self, connection: Connection) -> str:
        """Return why the deny list denies a connection, by its user or by what it has shown; empty: it does not."""
        if connection.transport is None:
            return ""
        shown = connection.transport.get_extra_info("shown")
        principal, certificates = (shown.principal, shown.certificates) if shown else ("", ())
        return self._broker.log_ins.denial((connection.session.principal, principal), certificates)

    def end_denied(self) -> int:
        """Close the connections of everybody whom the deny list denies; how many were closed."""
        found = [(connection, denial) for connection in self.connections if (denial := self.denial(connection))]
        for connection, denial in found:
            session = connection.session
            self._broker.effects.audit(
                "connection_denied",
                principal=session.principal,
                host=session.host,
                listener=session.listener,
                reason=denial,
            )
            connection.violate(ProtocolViolation(denial))
        return len(found)
