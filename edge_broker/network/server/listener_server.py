"""The listeners: accepts connections, bounds their number and memory, closes the idle ones.

| closed | when |
|---|---|
| one more than connection_limit.py says, or than max.connections.per.ip | at once; some are for this host alone |
| who has not logged in, and has asked for nothing for longest | as many are open, and its address has most |
| a silent one | connections.max.idle.ms without a request, and none unanswered |
| half a request | no byte for STALLED_S, or ahead for AHEAD_S_MAX, while another waits for memory |
| a client that is owed answers | it took no byte for UNREAD_S_MAX |

Contains: what all connections share. Does not contain: requests and their meaning (dispatcher).
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, cast

from drupelet.addresses import endpoint_text, is_loopback
from drupelet.errors import ConfigurationError, reason
from drupelet.host.descriptors import NO_LIMIT
from edge_broker.configuration.config import BrokerConfig
from edge_broker.configuration.listeners import Listener
from edge_broker.errors import ProtocolViolation
from edge_broker.network.connection.connection import RECEIVE_BUFFER_BYTES, Connection
from edge_broker.network.connection.connection_limit import connection_bound
from edge_broker.network.connection.memory_budget import ALLOWANCE_BYTES, Pool, Share
from edge_broker.network.dispatch.dispatcher import Dispatcher
from edge_broker.network.server.unread_responses import Unread
from edge_broker.protocol.api import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, OFFSET_COMMIT, SYNC_GROUP

if TYPE_CHECKING:  # it imports ssl, which costs 2 MB
    from edge_broker.network.server.tls_listeners import Encryption

BACKLOG = 512
LOOPBACK_CONNECTIONS = 16
STALLED_S = 10.0
AHEAD_S_MAX = 60.0
OWED_FOR_A_TURN_BYTES = 16_384
TURN_S = 0.004
SWEEP_S = 1.0
SWEEP_SOON_S = 0.05  # while memory for answers is half used
URGENT_KEYS = frozenset({JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP, OFFSET_COMMIT})


def _resolvable(host: str) -> list[bytes] | None:
    """A host as uvloop resolves it without the codec `idna`, which brings 0.4 MB of tables."""
    return [host.encode("ascii" if host.isascii() else "idna")] if host else None


class Server:
    """Owner of all client connections; owned by the loop."""

    def __init__(
        self,
        config: BrokerConfig,
        dispatcher: Dispatcher,
        loop: asyncio.AbstractEventLoop,
        *,
        open_files_max: int = NO_LIMIT,
    ) -> None:
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.request_bytes_max = config.integer("socket.request.max.bytes")
        self.requests: Pool = dispatcher.requests_pool
        self.answers: Pool = dispatcher.answers_pool
        self.connections: set[Connection] = set()
        self._peers: set[str] = set()
        dispatcher.broker.peers = self._peers
        dispatcher.logins.connections = self.connections
        self.bytes_in = 0
        self.bytes_out = 0
        self.violations = 0
        self._dispatcher = dispatcher
        self._loop = loop
        self._log = dispatcher.audit_log
        self._halves: dict[Connection, float] = {}
        self._unread = Unread(loop.time, self._unread_for_long)
        self._ahead_since: dict[Share, float] = {}  # who went ahead of the bound, seen since when
        self._sweeping = False
        self.ring: deque[Connection] = deque()
        self._written: list[Connection] = []
        self.bound = connection_bound(config.integer("max.connections"), open_files_max)
        self._connections_max = self.bound.most
        self._connections_per_ip_max = config.integer("max.connections.per.ip")
        self._connections_by_ip: dict[str, int] = {}
        self._came_from: dict[Connection, tuple[str, str]] = {}
        self._idle_s = config.integer("connections.max.idle.ms") / 1000
        self._listening: list[asyncio.Server] = []
        self.encryption: Encryption | None = None

    async def listen(self, listeners: Iterable[Listener], encryption: Encryption | None = None) -> list[Listener]:
        """Take addresses; the listeners with their real ports. ConfigurationError: an address cannot be had.

        No client is let in before `serve`.
        """
        self.encryption = encryption
        bound = [await self._listen(listener) for listener in listeners]
        self._loop.call_later(self._idle_s / 4, self._close_idle)
        return bound

    async def serve(self) -> None:
        """Accept connections: once what the broker is a member of is known, or what it leads would be anybody's."""
        for listening in self._listening:
            await listening.start_serving()

    async def _listen(self, listener: Listener) -> Listener:
        def make_connection() -> Connection:
            return Connection(self, self._loop.time, listener.name)

        factory: Callable[[], asyncio.BufferedProtocol] = make_connection
        if listener.is_encrypted:
            assert self.encryption is not None
            factory = self.encryption.protocol(listener.name, make_connection)
        try:
            hosts = cast("list[str] | None", _resolvable(listener.bind.host))  # uvloop takes bytes, its types do not
            listening = await self._loop.create_server(
                factory, hosts, listener.bind.port, backlog=BACKLOG, start_serving=False
            )
        except OSError as error:
            raise ConfigurationError(
                f"cannot listen on {endpoint_text(*listener.bind)}: {reason(error)}; choose another address or port"
            ) from None
        self._listening.append(listening)
        return listener.bound(listening.sockets[0].getsockname()[1])

    def refuse(self) -> None:
        """Take no new connections and no new requests; `close_connections` follows once enough is answered."""
        for listening in self._listening:
            listening.close()
        if self.encryption is not None:
            self.encryption.handshakes.refuse()
        for connection in list(self.connections):
            connection.halt()

    def close_connections(self) -> None:
        """Close every connection after what is already written has gone out."""
        for connection in list(self.connections):
            if connection.transport is not None:
                connection.transport.close()

    def bound_reached(self, ip: str) -> str:
        """The bound that one more connection from this address would break; empty: none."""
        return self._place(ip)[0]

    def _place(self, ip: str) -> tuple[str, Connection | None]:
        """The same, and whose place the connection takes, where it may come in and none is free."""
        if self._connections_by_ip.get(ip, 0) >= self._connections_per_ip_max:
            return f"max.connections.per.ip={self._connections_per_ip_max}", None
        kept = 0 if is_loopback(ip) else min(LOOPBACK_CONNECTIONS, self._connections_max // 2)
        if len(self.connections) + kept < self._connections_max:
            return "", None
        other = self._to_displace(ip)
        return "" if other is not None else self.bound.reason, other

    def _to_displace(self, ip: str) -> Connection | None:
        """The connection that one more from this address may replace, so that no client keeps all others out."""
        most = max(self._connections_by_ip, key=self._connections_by_ip.__getitem__)
        if self._connections_by_ip[most] <= self._connections_by_ip.get(ip, 0) + 1:
            return None
        strangers = (one for one in self.connections if one.session.host == most and not one.session.is_authenticated)
        return min(strangers, key=attrgetter("last_active"), default=None)

    def connection_opened(self, connection: Connection) -> bool:
        """Register a connection; False when there are too many already."""
        ip = connection.session.host
        bound, other = self._place(ip)
        if bound:
            self._log.line("warning", "connection_refused", client=connection.session.peer, bound=bound)
            return False
        if denial := self._dispatcher.logins.denial(connection):  # the list is newer than the handshake
            self.protocol_violated(connection, ProtocolViolation(denial))
            return False
        if other is not None:
            self._displace(other, ip)
        self.connections.add(connection)
        self._peers.add(connection.session.peer)
        self._connections_by_ip[ip] = self._connections_by_ip.get(ip, 0) + 1
        self._came_from[connection] = connection.session.peer, ip
        assert connection.transport is not None
        sock = connection.transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._dispatcher.logins.connection_opened(connection)
        if connection.session.is_authenticated:
            self._dispatcher.apply()
        return True

    def _displace(self, other: Connection, ip: str) -> None:
        bound = f"{self.bound.reason}: so many are open, and its address has most of them"
        other.violate(ProtocolViolation(f"{bound}; one from {ip} takes its place"))
        self.connection_closed(other)  # the loop tells it later, and its place is taken now

    def connection_closed(self, connection: Connection) -> None:
        """Forget a connection."""
        self._halves.pop(connection, None)
        self._unread.forget(connection)
        if connection not in self.connections:
            return
        self.connections.discard(connection)
        peer, ip = self._came_from.pop(connection)
        self._peers.discard(peer)
        self._connections_by_ip[ip] -= 1
        if not self._connections_by_ip[ip]:
            del self._connections_by_ip[ip]

    def request_received(self, connection: Connection, frame: memoryview) -> None:
        """Count a request and hand it on, unless the broker is stopping."""
        self.bytes_in += len(frame) + 4
        connection.last_active = self._loop.time()
        if self._dispatcher.refusing:
            raise ProtocolViolation("the broker is stopping")
        self._dispatcher.dispatch(connection, frame)

    def urgent(self, head: memoryview) -> bool:
        """Whether the request that begins like this un-parks others, and so never waits for what is parked."""
        return len(head) >= 2 and head[0] == 0 and head[1] in URGENT_KEYS

    def request_begun(self, connection: Connection) -> None:
        """A request has not arrived whole: it is looked at now and then."""
        self._halves[connection] = self._loop.time()
        self._sweep_soon()

    def unread_changed(self, connection: Connection, unread_bytes: int) -> None:
        """So much of what was written to this client has not left yet; a little of it mostly does within the turn."""
        if unread_bytes > OWED_FOR_A_TURN_BYTES:
            self._unread.unread_changed(connection, unread_bytes)
            self._sweep_soon()
            return
        if not self._written:
            self._loop.call_soon(self._see_written)
        self._written.append(connection)

    def _see_written(self) -> None:
        written, self._written = self._written, []
        for connection in written:
            if connection.transport is not None:
                unread_bytes = connection.transport.get_write_buffer_size()
                if unread_bytes > ALLOWANCE_BYTES:
                    self._unread.unread_changed(connection, unread_bytes)
                    self._sweep_soon()

    def due(self, connection: Connection) -> None:
        """Let a connection go on in a next turn of the loop, when those before have had theirs."""
        if not self.ring:
            self._loop.call_soon(self._turn)
        self.ring.append(connection)

    def _turn(self) -> None:
        """Let connections handle what they have put back, each once, until the time of this turn is up."""
        end = self._dispatcher.broker.clock.seconds() + TURN_S
        for _ in range(len(self.ring)):
            self.ring.popleft().turn()
            if self._dispatcher.broker.clock.seconds() >= end:
                break
        if self.ring:
            self._loop.call_soon(self._turn)

    def protocol_violated(self, connection: Connection, violation: ProtocolViolation) -> None:
        """Count and log why a connection is closed."""
        if not self._dispatcher.refusing:
            self.violations += 1
            self._log.line("warning", "connection_closed", client=connection.session.peer, reason=violation)

    def _sweep_soon(self) -> None:
        if not self._sweeping:
            self._sweeping = True
            busy = self.answers.waiting or self.answers.used > self.answers.bytes_max // 2
            self._loop.call_later(SWEEP_SOON_S if busy else SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        """Watch clients with a begun request or unread answers, as long as there is one."""
        self._sweeping = False
        now = self._loop.time()
        for connection in list(self._halves):
            if connection.half:
                self._see_half(connection, now)
            else:
                del self._halves[connection]
        self._see_ahead(now)
        self._unread.check_clients()
        if self._halves or self._unread:
            self._sweep_soon()

    def _see_half(self, connection: Connection, now: float) -> None:
        connection.read_as_it_comes()
        if connection.waits_for_memory or connection.took_bytes():
            self._halves[connection] = now
        elif self.requests.waiting and connection.requests.held > ALLOWANCE_BYTES:
            stalled_s = now - self._halves[connection]
            if stalled_s >= STALLED_S:
                self._close_stalled(connection, f"a request stopped in the middle for {stalled_s:.0f} s")

    def _see_ahead(self, now: float) -> None:
        self._ahead_since = {share: self._ahead_since.get(share, now) for share in self.requests.ahead_bytes}
        if self._ahead_since and self.requests.waiting:
            for connection in list(self._halves):
                if now - self._ahead_since.get(connection.requests, now) >= AHEAD_S_MAX:
                    self._close_stalled(connection, f"a request did not arrive whole in {AHEAD_S_MAX:.0f} s")

    def _close_stalled(self, connection: Connection, why: str) -> None:
        connection.violate(ProtocolViolation(f"{why}, and others wait for the memory it holds"))

    def _unread_for_long(self, connection: Connection, seconds: float) -> None:
        connection.violate(ProtocolViolation(f"the client took no byte of its answers for {seconds:.0f} s"))

    def _close_idle(self) -> None:
        oldest = self._loop.time() - self._idle_s
        for connection in list(self.connections):
            if connection.last_active < oldest and not connection.unanswered:
                connection.abort()
        self._loop.call_later(self._idle_s / 4, self._close_idle)
