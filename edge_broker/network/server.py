"""The listener: accepts connections, bounds their number and memory, closes the idle ones.

Lives here: what all connections share. Must never come in: requests and their meaning (dispatcher).
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable

from edge_broker.config import BrokerConfig, Endpoint
from edge_broker.errors import ConfigurationError, ProtocolViolation
from edge_broker.network.connection import RECEIVE_BUFFER_BYTES, Connection
from edge_broker.network.dispatcher import Dispatcher
from edge_broker.network.log_lines import log_line

BACKLOG = 512


class Server:
    """Owner of all client connections; owned by the loop."""

    def __init__(self, config: BrokerConfig, dispatcher: Dispatcher, loop: asyncio.AbstractEventLoop) -> None:
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.request_bytes_max = config.integer("socket.request.max.bytes")
        self.connections: set[Connection] = set()
        self.bytes_in = 0
        self.bytes_out = 0
        self.violations = 0
        self._dispatcher = dispatcher
        self._loop = loop
        self._reserved_bytes = 0
        self._reserved_bytes_max = max(config.integer("queued.max.request.bytes"), self.request_bytes_max)
        self._connections_max = config.integer("max.connections")
        self._idle_s = config.integer("connections.max.idle.ms") / 1000
        self._listener: asyncio.Server | None = None

    async def listen(self, endpoint: Endpoint) -> Endpoint:
        """Accept connections; the endpoint with its real port. ConfigurationError when the address cannot be had."""
        try:
            self._listener = await self._loop.create_server(
                lambda: Connection(self, self._loop.time), endpoint.host, endpoint.port, backlog=BACKLOG
            )
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigurationError(
                f"cannot listen on {endpoint.host}:{endpoint.port}: {reason}; choose another --listen"
            ) from None
        port = self._listener.sockets[0].getsockname()[1]
        self._loop.call_later(self._idle_s / 4, self._close_idle)
        return Endpoint(endpoint.host, port)

    def refuse(self) -> None:
        """Take no new connections and no new requests; `close_connections` follows once enough is answered."""
        if self._listener is not None:
            self._listener.close()
        for connection in list(self.connections):
            connection.halt()

    def close_connections(self) -> None:
        """Close every connection after what is already written has gone out."""
        for connection in list(self.connections):
            if connection.transport is not None:
                connection.transport.close()

    def opened(self, connection: Connection) -> bool:
        """Register a connection; False when there are max.connections already."""
        if len(self.connections) >= self._connections_max:
            log_line("warning", "connection-refused", client=connection.peer, max_connections=self._connections_max)
            return False
        self.connections.add(connection)
        assert connection.transport is not None
        sock = connection.transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return True

    def closed(self, connection: Connection) -> None:
        """Forget a connection."""
        self.connections.discard(connection)

    def received(self, connection: Connection, frame: memoryview) -> None:
        """Count a request and hand it on, unless the broker is stopping."""
        self.bytes_in += len(frame) + 4
        connection.last_active = self._loop.time()
        if self._dispatcher.refusing:
            raise ProtocolViolation("the broker is stopping")
        self._dispatcher.dispatch(connection, frame)

    def reserve(self, connection: Connection, size: int) -> bool:
        """Set memory aside for a half-received frame."""
        if self._reserved_bytes + size > self._reserved_bytes_max:
            return False
        self._reserved_bytes += size
        return True

    def release(self, size: int) -> None:
        """Give such memory back."""
        self._reserved_bytes -= size

    def soon(self, call: Callable[[], None]) -> None:
        """Call in the next turn of the loop."""
        self._loop.call_soon(call)

    def violated(self, connection: Connection, violation: ProtocolViolation) -> None:
        """Count and log why a connection is closed."""
        if not self._dispatcher.refusing:
            self.violations += 1
            log_line("warning", "connection-closed", client=connection.peer, reason=violation)

    def _close_idle(self) -> None:
        oldest = self._loop.time() - self._idle_s
        for connection in list(self.connections):
            if connection.last_active < oldest and not connection.unanswered:
                connection.abort()
        self._loop.call_later(self._idle_s / 4, self._close_idle)


def is_loopback(host: str) -> bool:
    """True when only this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
