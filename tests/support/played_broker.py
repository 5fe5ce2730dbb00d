"""A broker that a test plays for a whole client: a method for each API, on the wire of `scripted_wire`.

A subclass has the methods that its test needs. Does not contain: frames, and connections that are played by steps.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from edge_broker.protocol.messages.find_coordinator import FindCoordinatorResponse
from edge_broker.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from tests.support.scripted_wire import APIS, Peer, Request, playing

NODE = 7


class PlayedBroker:
    """Node 7, alone in its cluster. `asked` has the names of its requests, `connections` how many there were.

    `on_NAME` returns the response of an API, or None for silence; ConnectionError closes the connection.
    """

    def __init__(self) -> None:
        """Answer ApiVersions with all versions, but for those that `versions` has by API."""
        self.port = self.connections = 0
        self.asked: list[str] = []
        self.versions: dict[str, tuple[int, int]] = {}
        self.codes: dict[str, list[Any]] = {}
        """Error codes of the next responses by API, or "lost": the connection is closed instead."""

    async def play(self, peer: Peer) -> None:
        """Serve a connection."""
        self.connections += 1
        await peer.begin(**self.versions)
        while True:
            await self.serve(peer, await peer.request())

    async def serve(self, peer: Peer, request: Request) -> None:
        """Answer one request."""
        name = APIS[request.key].name
        self.asked.append(name)
        answer = getattr(self, f"on_{name}")(request.message)
        if answer is not None:
            peer.answer(request, answer)

    def code(self, name: str) -> int:
        """Return the error code of the next response of an API; raises ConnectionResetError where it is "lost"."""
        code = self.codes[name].pop(0) if self.codes.get(name) else 0
        if code == "lost":
            raise ConnectionResetError
        return int(code)

    def node(self) -> MetadataResponseBroker:
        """Return this broker's row of a Metadata response."""
        return MetadataResponseBroker(node_id=NODE, host="127.0.0.1", port=self.port)

    def on_Metadata(self, _: Any) -> Any:
        """Return this broker, and no topics."""
        return MetadataResponse(brokers=[self.node()])

    def on_FindCoordinator(self, _: Any) -> Any:
        """Return this broker as the coordinator of everything."""
        code = self.code("FindCoordinator")
        return FindCoordinatorResponse(error_code=code, node_id=NODE, host="127.0.0.1", port=self.port)


_Played = TypeVar("_Played", bound=PlayedBroker)


@asynccontextmanager
async def listening(broker: _Played) -> AsyncIterator[_Played]:
    """Let a broker listen on a free port of loopback."""
    async with playing(broker.play) as broker.port:
        yield broker
