"""Request context: the authenticated principal, the client address, and the request header.

Contains: both values. Does not contain: sockets, permissions (state/topic_registry.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edge_broker.configuration.security_keys import PLAINTEXT
from edge_broker.security.principals import ANONYMOUS

if TYPE_CHECKING:
    from edge_broker.security.sasl import Login


class Session:
    """A connection as handlers see it: `peer` is ADDRESS:PORT, `principal` and `listener` by Kafka's names.

    `host` is the client's address, computed once, as every right is asked by it. `secure` says that it is encrypted,
    `login` how far its log-in is where its listener has any.

    It has the facts that stay from one request to the next: the authenticated user, quotas.
    """

    __slots__ = ("host", "listener", "login", "peer", "principal", "secure")

    def __init__(
        self, peer: str, *, principal: str = ANONYMOUS, listener: str = PLAINTEXT, secure: bool = False
    ) -> None:
        self.peer = peer
        self.principal = principal
        self.listener = listener
        self.secure = secure
        self.login: Login | None = None
        self.host = peer.rpartition(":")[0]

    @property
    def is_authenticated(self) -> bool:
        """Whether the client has authenticated, by a certificate or by SASL."""
        return self.principal != ANONYMOUS

    @property
    def author(self) -> dict[str, object]:
        """The author of a change by this session, as the security log names it."""
        return {"principal": self.principal, "host": self.host}


class RequestContext(NamedTuple):
    """A request of a session: `token` is unique per request, `api_version` the version of request and response."""

    token: int
    api_version: int
    client_id: str
    session: Session
