"""Links to one other broker: its address by its registration, and the member's calls when a link has news.

| news of a link | the member learns |
|---|---|
| a message arrives | `message_received` |
| a fetch link is connected | `connected_to`; the port is open |
| the port refuses connections | `port_closed`, once for each registration |

Does not contain: which links exist (link_table.py), sockets (broker_link.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from edge_broker.broker.cluster.cluster_view import endpoint_of
from edge_broker.cluster.inter_broker_messages import Message
from edge_broker.cluster.member import FORMER_LIFE, ClusterMember
from edge_broker.cluster.state.cluster_state import Registration
from edge_broker.network.cluster.broker_link import Owner
from edge_broker.network.cluster.broker_request_link import AskingLink
from edge_broker.network.cluster.replica_fetch_link import Bounds, ReplicaLink
from edge_broker.network.log_lines import LimitedLog, log_line

if TYPE_CHECKING:
    from drupelet.kafka.security import Security
    from edge_broker.broker.cluster.unreachable_brokers import ClosedPorts
    from edge_broker.configuration.config import Endpoint

Turn = Callable[[Callable[[float], None]], None]
"""Runs a call on the member at the time of now, then the effects that it leaves."""


class PeerLinks:
    """Makes the links of one member; `turn` gets the calls on the member."""

    def __init__(
        self,
        member: ClusterMember,
        turn: Turn,
        now_ms: Callable[[], float],
        *,
        listener: str,
        closed_ports: ClosedPorts,
        session_ms: int,
        security: Security,
        bounds: Bounds,
        log: LimitedLog,
    ) -> None:
        """`listener`: the name of the one for brokers; `session_ms`: of the session with ZooKeeper, by `now_ms`."""
        self._member, self._turn, self._now_ms = member, turn, now_ms
        self._listener, self._closed_ports, self._session_ms = listener, closed_ports, session_ms
        self._security, self._bounds, self._log = security, bounds, log
        self._unreachable: set[tuple[int, int]] = set()  # by broker and registration: those that are logged

    def open_fetch_link(self, to: int) -> ReplicaLink:
        """Return a new link for fetches from a broker."""
        return ReplicaLink(self.owner(to), self._security, self._bounds, self._log, to)

    def open_request_link(self, to: int) -> AskingLink:
        """Return a new link for requests to a broker."""
        owner = self.owner(to)._replace(connected=partial(self._closed_ports.broker_reached, to))
        return AskingLink(owner, self._security, self._log, to)

    def owner(self, to: int) -> Owner:
        """Return the callbacks of a link to a broker, and what the link asks about it."""
        member = self._member
        return Owner(
            member.identity.broker,
            lambda: member.identity.directory,
            partial(self._endpoint, to),
            self._topic_id,
            self._message_received,
            partial(self._link_connected, to),
            partial(self._port_refused, to),
        )

    def _endpoint(self, to: int) -> Endpoint | None:
        registration = self._member.registrations.get(to)
        if registration is None:
            return None
        at = registration.address(self._listener)
        if at is None:
            self._log_unreachable(registration)
            return None
        return endpoint_of(at)

    def _topic_id(self, name: str) -> str | None:
        topic = self._member.image.topics.get(name)
        return None if topic is None else topic.topic_id

    def _message_received(self, message: Message) -> None:
        self._turn(lambda now_ms: self._member.message_received(message, now_ms))

    def _link_connected(self, to: int) -> None:
        self._closed_ports.broker_reached(to)
        self._turn(partial(self._member.connected_to, to))

    def _port_refused(self, to: int) -> None:
        registration = self._member.registrations.get(to)
        if registration is not None:
            until_ms = self._now_ms() + FORMER_LIFE * self._session_ms
            if self._closed_ports.port_refused(to, registration.epoch, until_ms):
                self._turn(partial(self._member.port_closed, to, registration.epoch))

    def _log_unreachable(self, other: Registration) -> None:
        """Log once for each registration that a broker has no listener of the brokers' name."""
        if (other.broker, other.epoch) not in self._unreachable:
            self._unreachable.add((other.broker, other.epoch))
            names = ", ".join(name for name, _ in other.endpoints)
            text = (
                f"broker {other.broker} cannot be replicated from: it has listeners {names}, and this broker speaks "
                f"to others by {self._listener}; inter.broker.listener.name is to name one that all of them have"
            )
            log_line("error", "broker_unreachable", broker=other.broker, text=text)
