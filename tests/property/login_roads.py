"""Roads of strangers to a broker: through memory or a socket, plain or by TLS whose records are mutated, too.

Lives here: how bytes travel. Must never come in: what they are (login_plays.py), what must hold (login_fuzz.py).
"""

from __future__ import annotations

import random
import select
import socket
import ssl
from typing import Any, cast

from edge_broker.network.connection.connection import Connection
from edge_broker.network.tls.handshakes import Handshakes
from edge_broker.network.tls.tls_contexts import Tls
from edge_broker.network.tls.tls_transport import TlsTransport
from edge_broker.testing.client import Transport
from edge_broker.testing.site import Site
from edge_broker.testing.worker import HandWorker
from tests.property.login_plays import Road, mutated

ANSWER_S = 0.01  # that a stranger waits for an answer, which often does not come
CLOSED_S_MAX = 60.0
RECEIVED_AT_ONCE = 1 << 16


class SiteTls:
    """TLS of a broker in this process, whose worker works when it is told to."""

    def __init__(self, site: Site, tls: Tls) -> None:
        self.tls = tls
        self.worker = HandWorker(site.loop, "handshakes")
        self.handshakes = Handshakes(
            cast(Any, site.loop),
            cast(Any, self.worker),
            site.server.bound_reached,
            lambda: site.server.requests.short,
            site.clock.seconds,
        )


class MemoryTransport(Transport):
    """A transport as the loop's own; it may be asked for what it has not."""

    def get_extra_info(self, name: str, default: object = None) -> object:
        """An address, no socket."""
        found = super().get_extra_info(name)
        return default if found is None else found


class MemoryRoad:
    """A connection to a listener of a broker in this process, with TLS or without."""

    def __init__(self, site: Site, listener: str, tls: SiteTls | None) -> None:
        self._site = site
        self._worker = tls.worker if tls is not None else None
        self.connection = Connection(site.server, site.loop.time, listener)
        self._transport = MemoryTransport()
        self._protocol: Connection | TlsTransport = self.connection
        if tls is not None:
            self._protocol = TlsTransport(
                tls.handshakes, tls.tls.context, tls.tls.check_client, lambda: self.connection
            )
        self._transport.protocol = cast(Any, self._protocol)
        self._protocol.connection_made(cast(Any, self._transport))
        self._lost = False

    def send(self, data: bytes) -> None:
        """Bytes arrive as long as they are read; the broker works until nothing is left to do."""
        position = 0
        while position < len(data) and not self._transport.closed:
            self.settle()
            if not self._transport.reading:
                break
            buffer = cast(memoryview, self._protocol.get_buffer(-1))
            size = min(len(buffer), len(data) - position)
            buffer[:size] = data[position : position + size]
            del buffer
            self._protocol.buffer_updated(size)
            position += size

    def settle(self) -> None:
        """Let loop and workers work until nothing is left to do without time passing."""
        self._site.run_until_idle()
        while self._worker is not None and self._worker:
            self._worker.step()
            self._site.run_until_idle()
        if self._transport.closed and not self._lost:
            self._lost = True
            self._protocol.connection_lost(None)

    @property
    def closed(self) -> bool:
        """Whether the broker has closed."""
        return self._transport.closed

    def answered(self) -> bytes:
        """All that was written until now."""
        self.settle()
        return bytes(self._transport.sent)

    def pause(self, ms: int) -> None:
        """Time passes."""
        if ms:
            self._site.loop.advance(ms)

    def end(self) -> bytes:
        """The connection breaks, whatever is under way."""
        self._transport.closed = True
        self.settle()
        return bytes(self._transport.sent)


class SocketRoad:
    """A connection to a broker in a process of its own."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), CLOSED_S_MAX)
        self._got = bytearray()
        self._closed = False

    def send(self, data: bytes) -> None:
        """Send all, unless the broker has closed."""
        if not self._closed:
            try:
                self._socket.sendall(data)
            except (BrokenPipeError, ConnectionResetError):
                self._closed = True

    def answered(self) -> bytes:
        """What has come; where nothing has, what comes soon."""
        wait_s = ANSWER_S
        while not self._closed and select.select([self._socket], [], [], wait_s)[0]:
            self._receive()
            wait_s = 0.0
        return bytes(self._got)

    def _receive(self) -> None:
        try:
            data = self._socket.recv(RECEIVED_AT_ONCE)
        except ConnectionResetError:
            data = b""
        self._got += data
        self._closed = not data

    def pause(self, ms: int) -> None:
        """Time is not ours here."""

    def end(self) -> bytes:
        """Send no more; the broker closes, or TimeoutError."""
        if not self._closed:
            try:
                self._socket.shutdown(socket.SHUT_WR)
            except OSError:  # it was reset
                self._closed = True
        while not self._closed:
            self._receive()
        return bytes(self._got)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class TlsRoad:
    """TLS on another road; of what goes there a part is mutated."""

    def __init__(self, road: Road, context: ssl.SSLContext, rnd: random.Random) -> None:
        self._road = road
        self._rnd = rnd
        self._rate = rnd.choice((0.0, 0.0, 0.1, 0.5))
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._taken = 0
        self._got = bytearray()
        self._open = self._broken = False
        self._shake_hands()

    def _shake_hands(self) -> None:
        for _ in range(4):
            try:
                self._tls.do_handshake()
                self._open = True
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                self._broken = True
            self._pass_on()
            if self._open or self._broken:
                return
            self._take()

    def _pass_on(self) -> None:
        data = self._outgoing.read()
        if data and self._rnd.random() < self._rate:
            data = mutated(self._rnd, data)
        if data:
            self._road.send(data)

    def _take(self) -> None:
        answered = self._road.answered()
        self._incoming.write(answered[self._taken :])
        self._taken = len(answered)

    def send(self, data: bytes) -> None:
        """Send encrypted; as it is where there was no handshake."""
        if not self._open:
            self._road.send(data)
            return
        try:
            self._tls.write(data)
        except ssl.SSLError:
            self._broken = True
        self._pass_on()

    def answered(self) -> bytes:
        """What can be decrypted of what has come."""
        self._take()
        self._decrypt()
        return bytes(self._got)

    def _decrypt(self) -> None:
        try:
            while self._open and not self._broken and (data := self._tls.read(RECEIVED_AT_ONCE)):
                self._got += data
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:  # an alert, or close_notify
            self._broken = True

    def pause(self, ms: int) -> None:
        """Let time pass on the road."""
        self._road.pause(ms)

    def end(self) -> bytes:
        """Leave without a word, as a stranger does."""
        answered = self._road.end()
        self._incoming.write(answered[self._taken :])
        self._taken = len(answered)
        self._decrypt()
        return bytes(self._got)
