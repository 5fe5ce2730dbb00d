"""A broker on loopback that a test plays, request by request: whatever no good one sends can be sent by it.

It runs on the loop of the client that it is there for. Must never come in: anything that a test does not say.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

from drupelet.kafka.security import Security
from edge_broker.protocol.api import API_VERSIONS, read_request_header
from edge_broker.protocol.codec import decode, encode
from edge_broker.protocol.message import Message
from edge_broker.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from kafka_wire import apis
from kafka_wire.connection.connection import Connection
from tests.support.waiting import CALL_S, Deadline

APIS = {asked.api.key: asked.api for asked in apis.ALL}


class Request(NamedTuple):
    """A request as it came: its API's key, version, correlation id, and itself."""

    key: int
    version: int
    id: int
    message: Message


class Peer:
    """One client's connection, seen from the broker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def request(self) -> Request:
        """The next request; IncompleteReadError when the client is gone."""
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        frame = memoryview(await self.reader.readexactly(size))
        key, version, number, _, position = read_request_header(frame, APIS)
        return Request(key, version, number, decode(APIS[key].request, version, frame, position))

    def write(self, content: bytes) -> None:
        """Send bytes as they are."""
        self.writer.write(content)

    def answer(self, request: Request, message: Message) -> None:
        """Send a whole answer."""
        self.write(answer_to(request, message))

    async def begin(self, **versions: tuple[int, int]) -> None:
        """Answer ApiVersions, with other versions than all for the APIs named as `kafka_wire.apis` names them."""
        self.serve(await self.request(), **versions)

    def serve(self, request: Request, **versions: tuple[int, int]) -> None:
        """The same of a request that was read already."""
        assert request.key == API_VERSIONS
        own = {getattr(apis, name).api.key: bounds for name, bounds in versions.items()}
        served = [
            ApiVersion(api_key=key, min_version=first, max_version=last)
            for key, (first, last) in (
                {key: (api.min_version, api.max_version) for key, api in APIS.items()} | own
            ).items()
        ]
        self.answer(request, ApiVersionsResponse(api_keys=served))


def answer_to(request: Request, message: Message) -> bytes:
    """An answer with its size and header."""
    flexible = request.version >= APIS[request.key].flexible_from and request.key != API_VERSIONS
    content = b"".join(encode(message, request.version))
    return framed(request.id.to_bytes(4, "big") + (b"\0" if flexible else b"") + content)


def framed(body: bytes) -> bytes:
    """A frame."""
    return len(body).to_bytes(4, "big") + body


@asynccontextmanager
async def playing(
    play: Callable[[Peer], Awaitable[None]], host: str = "127.0.0.1", tls: Any = None
) -> AsyncIterator[int]:
    """Serve each connection by `play`, which is ended with the test; the port. What `play` raises, the test raises."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await play(Peer(reader, writer))
        writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.ensure_future(serve(reader, writer)))

    server = await asyncio.start_server(accept, host, 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended


async def opened(port: int, security: Security | None = None, **more: Any) -> Connection:
    """A connection to a port of loopback."""
    tuned: dict[str, Any] = {"timeout_s": CALL_S} | more
    return await Connection.open(security or Security(), "127.0.0.1", port, "unit", **tuned)


async def until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition, on the loop."""
    deadline = Deadline(30)
    while not condition():
        deadline.check(what, None)
        await asyncio.sleep(0.01)
