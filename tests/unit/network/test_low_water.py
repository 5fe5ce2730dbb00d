"""Real sockets: a request in many pieces wakes the loop a few times, and nothing is waited for that never comes."""

from __future__ import annotations

import array
import asyncio
import fcntl
import socket
import ssl
import termios
from collections.abc import Callable
from typing import Any, cast

import pytest

from drupelet import event_loop
from edge_broker.network.connection.connection import Connection
from edge_broker.network.connection.socket_low_water import WAIT_BYTES_MAX
from edge_broker.network.tls.tls_transport import READ_BYTES, ClientIdentity, Step, TlsTransport
from tests.support.certificates import Authority
from tests.support.waiting import Deadline
from tests.unit.network.test_connection import FakeOwner, wire

PIECE_BYTES = 1000
REQUEST_BYTES = 100_000


class Loop:
    """A server on a loop of its own, and one client whose bytes come piece by piece, each before the next is sent."""

    def __init__(self, authority: Authority | None) -> None:
        self.owner = FakeOwner(1 << 18)
        self.reads = 0
        self.lost = False
        self.server_end: socket.socket | None = None
        self.connection: Connection | None = None
        self.authority = authority
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls: ssl.SSLObject | None = None
        self.cipher_buffer = memoryview(bytearray(READ_BYTES))
        self.kept_bytes, self.short, self.is_crowded = 0, False, False

    # what a TLS connection needs

    def seconds(self) -> float:
        return 0.0

    def begin(self, transport: TlsTransport) -> bool:
        return True

    def step(self, transport: TlsTransport, work: Callable[[], Step]) -> None:
        asyncio.get_running_loop().call_soon(lambda: transport.step_completed(work()))

    def end(self, transport: TlsTransport, why: str = "", principal: str = "") -> None:
        assert not why

    def due(self, transport: TlsTransport) -> None:
        asyncio.get_running_loop().call_soon(transport.turn)

    # the server

    def made(self) -> Connection:
        site = self

        class Counted(Connection):
            def connection_lost(self, exc: Exception | None) -> None:
                site.lost = True
                super().connection_lost(exc)

        self.connection = Counted(cast(Any, self.owner), lambda: 0.0)
        return self.connection

    def protocol(self) -> asyncio.BufferedProtocol:
        site = self
        made: asyncio.BufferedProtocol = self.made() if self.authority is None else self._tls()
        plain = made.buffer_updated
        begun = made.connection_made

        def buffer_updated(nbytes: int) -> None:
            site.reads += 1
            plain(nbytes)

        def connection_made(transport: asyncio.BaseTransport) -> None:
            site.server_end = transport.get_extra_info("socket")
            begun(transport)

        return _Counting(made, connection_made, buffer_updated)

    def _tls(self) -> TlsTransport:
        assert self.authority is not None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.num_tickets = 0
        context.load_cert_chain(*self.authority.sign("broker", "DNS:localhost"))
        return TlsTransport(cast(Any, self), context, lambda _: ClientIdentity(), self.made)

    # the client

    async def connect(self) -> socket.socket:
        loop = asyncio.get_running_loop()
        self.listening = await loop.create_server(self.protocol, "127.0.0.1", 0)
        port = self.listening.sockets[0].getsockname()[1]
        client = socket.socket()
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await loop.sock_connect(client, ("127.0.0.1", port))
        if self.authority is not None:
            context = ssl.create_default_context(cafile=str(self.authority.certificate))
            self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
            done = False
            while not done:
                try:
                    self.tls.do_handshake()
                    done = True
                except ssl.SSLWantReadError:
                    pass
                await loop.sock_sendall(client, self.outgoing.read())
                if not done:
                    self.incoming.write(await loop.sock_recv(client, 65_536))
        await self.until(lambda: None not in (self.connection, self.server_end) and self.unread() == 0)
        return client

    def sealed(self, data: bytes) -> bytes:
        """As it goes over the wire, records of two pieces and a half."""
        if self.tls is None:
            return data
        for begin in range(0, len(data), 2500):
            self.tls.write(data[begin : begin + 2500])
        return self.outgoing.read()

    async def send(self, client: socket.socket, data: bytes) -> None:
        """All of it, piece by piece; each has come to the server's socket, or was read, before the next goes."""
        loop = asyncio.get_running_loop()
        for begin in range(0, len(data), PIECE_BYTES):
            before, reads = self.unread(), self.reads
            piece = data[begin : begin + PIECE_BYTES]
            await loop.sock_sendall(client, piece)
            await self.until(lambda: self.reads > reads or self.unread() == before + len(piece))  # noqa: B023

    def unread(self) -> int:
        """Bytes in the server's socket."""
        assert self.server_end is not None
        found = array.array("i", [0])
        fcntl.ioctl(self.server_end.fileno(), termios.FIONREAD, found)
        return found[0]

    async def until(self, seen: Callable[[], bool]) -> None:
        deadline = Deadline(10)
        while not seen():
            assert deadline.left_s > 0, f"{self.reads} reads, {len(self.owner.frames)} requests"
            await asyncio.sleep(0)


class _Counting(asyncio.BufferedProtocol):
    """A protocol whose reads are counted."""

    def __init__(
        self,
        inner: asyncio.BufferedProtocol,
        connection_made: Callable[[asyncio.BaseTransport], None],
        buffer_updated: Callable[[int], None],
    ) -> None:
        self.inner = inner
        self.connection_made = connection_made  # type: ignore[method-assign]
        self.buffer_updated = buffer_updated  # type: ignore[method-assign]
        self.get_buffer = inner.get_buffer  # type: ignore[method-assign]
        self.connection_lost = inner.connection_lost  # type: ignore[method-assign]
        self.pause_writing = inner.pause_writing  # type: ignore[method-assign]
        self.resume_writing = inner.resume_writing  # type: ignore[method-assign]


@pytest.fixture(params=["plain", "TLS"])
def authority(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Authority | None:
    return Authority(tmp_path_factory.mktemp("ca")) if request.param == "TLS" else None


def test_a_request_in_many_pieces_wakes_the_loop_a_few_times(authority: Authority | None) -> None:
    async def go() -> None:
        loop = Loop(authority)
        client = await loop.connect()
        for number in range(3):
            reads = loop.reads
            await loop.send(client, loop.sealed(wire([bytes(REQUEST_BYTES)])))
            await loop.until(lambda: len(loop.owner.frames) == 2 * number + 1)  # noqa: B023
            assert loop.reads - reads <= 2 + 2 * REQUEST_BYTES / WAIT_BYTES_MAX + 2 * 5  # of 100 pieces
            await loop.send(client, loop.sealed(wire([b"small"])))
            await loop.until(lambda: len(loop.owner.frames) == 2 * number + 2)  # noqa: B023
        client.close()
        loop.listening.close()

    event_loop.run(go())


def test_a_client_that_comes_slowly_is_heard_and_one_that_leaves_is_missed(authority: Authority | None) -> None:
    async def go() -> None:
        loop = Loop(authority)
        client = await loop.connect()
        data = loop.sealed(wire([bytes(REQUEST_BYTES)]))
        await loop.send(client, data[:5000])
        assert loop.unread() > 0, "the rest is waited for"
        assert loop.connection is not None
        loop.connection.read_as_it_comes()
        await loop.until(lambda: loop.unread() == 0)
        reads = loop.reads
        await loop.send(client, data[5000:9000])
        await loop.until(lambda: loop.unread() == 0)
        assert loop.reads > reads
        await loop.send(client, data[9000:])
        await loop.until(lambda: len(loop.owner.frames) == 1)
        await loop.send(client, loop.sealed(wire([bytes(REQUEST_BYTES)]))[:5000])
        assert loop.unread() > 0
        client.close()
        await loop.until(lambda: loop.lost)
        loop.listening.close()

    event_loop.run(go())
