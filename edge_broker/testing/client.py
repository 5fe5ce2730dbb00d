"""A client in this process: requests go through the codec to a real connection, answers come back through it.

Contains: the near end of a connection, and who writes requests to it. Does not contain: sockets, what an answer
should say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from edge_broker.configuration.security_keys import PLAINTEXT
from edge_broker.handlers import APIS
from edge_broker.network.connection.connection import Connection
from edge_broker.network.server.listener_server import Server
from edge_broker.protocol.api import API_VERSIONS
from edge_broker.protocol.codec import decode, encode
from edge_broker.protocol.message import Message
from edge_broker.testing.loop import Loop


class Transport:
    """The near end of a connection; `sent` is what the broker wrote, kept back in `unread` once `stuck`."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.reading = True
        self.closed = False
        self.protocol: Connection | None = None
        self.buffered = 0
        self.stuck = False
        self.high = 1 << 62

    def get_extra_info(self, name: str) -> object:
        """An address, no socket."""
        return ("127.0.0.1", 4711) if name == "peername" else None

    def set_write_buffer_limits(self, high: int) -> None:
        """Keep the limit."""
        self.high = high

    def write(self, data: bytes) -> None:
        """Send, or buffer when the client is stuck."""
        self.sent += data
        if self.stuck:
            before, self.buffered = self.buffered, self.buffered + len(data)
            if before <= self.high < self.buffered and self.protocol is not None:
                self.protocol.pause_writing()

    def writelines(self, parts: list[bytes]) -> None:
        """Send all parts."""
        self.write(b"".join(parts))

    def get_write_buffer_size(self) -> int:
        """Return the bytes that the client has not read."""
        return self.buffered

    def drain(self) -> None:
        """The client reads again."""
        self.stuck = False
        self.buffered = 0
        if self.protocol is not None:
            self.protocol.resume_writing()

    def pause_reading(self) -> None:
        """Take nothing more from the client."""
        self.reading = False

    def resume_reading(self) -> None:
        """Take more from the client."""
        self.reading = True

    def is_closing(self) -> bool:
        """True once closed."""
        return self.closed

    def abort(self) -> None:
        """Close."""
        self.closed = True

    close = abort


class Client:
    """One connection; requests go through the codec, answers come back through it, in the order they were sent.

    `run_until_idle` lets loop and workers work until nothing is left to do without time passing.
    """

    def __init__(self, server: Server, loop: Loop, settle: Callable[[], None], listener: str = PLAINTEXT) -> None:
        self.settle = settle
        self._loop = loop
        self.connection = Connection(server, loop.time, listener)
        self.transport = Transport()
        self.transport.protocol = self.connection
        self.connection.connection_made(cast(Any, self.transport))
        self._sent: dict[int, tuple[int, int]] = {}
        self._next_id = 1

    def frame(self, key: int, request: Message, version: int = -1, body: bytes | None = None) -> bytes:
        """A request as it goes over the wire, size included; the newest version unless told."""
        version = APIS[key].max_version if version < 0 else version
        correlation_id = self._next_id
        self._next_id += 1
        self._sent[correlation_id] = (key, version)
        header = b"".join(number.to_bytes(2, "big") for number in (key, version)) + correlation_id.to_bytes(4, "big")
        header += b"\0\4test" + (b"\0" if version >= APIS[key].flexible_from else b"")
        frame = header + (b"".join(encode(request, version)) if body is None else body)
        return len(frame).to_bytes(4, "big") + frame

    def feed(self, data: bytes) -> None:
        """Bytes arrive; what finds no room in the receive buffer arrives later, unless reading stops."""
        position = 0
        while position < len(data) and not self.transport.closed:
            position += self._take(data[position:])

    def arrive(self, data: bytes) -> int:
        """Bytes arrive as a socket has them: none while reading is paused, else what there is room for; how many."""
        return self._take(data) if self.transport.reading and not self.transport.closed else 0

    def _take(self, data: bytes) -> int:
        buffer = self.connection.get_buffer(-1)
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        del buffer  # as the loop lets go of it: what it is a view of may grow
        self.connection.buffer_updated(size)
        self.lose_when_closed()
        return size

    def lose_when_closed(self) -> None:
        """Do what the loop does once a transport was aborted."""
        if self.transport.closed and self.connection.transport is not None:
            self.connection.connection_lost(None)

    def send(self, key: int, request: Message, version: int = -1) -> None:
        """Send a request and let the loop run, the workers not."""
        self.feed(self.frame(key, request, version))
        self._loop.run()

    def lose(self) -> None:
        """The connection breaks."""
        self.transport.closed = True
        self.lose_when_closed()

    def answers(self) -> list[Any]:
        """The responses that have come since the last call."""
        found: list[Any] = []
        data = bytes(self.transport.sent)
        self.transport.sent.clear()
        position = 0
        while position < len(data):
            size = int.from_bytes(data[position : position + 4], "big")
            frame = memoryview(data)[position + 4 : position + 4 + size]
            key, version = self._sent.pop(int.from_bytes(frame[:4], "big"))
            flexible = version >= APIS[key].flexible_from and key != API_VERSIONS
            found.append(decode(APIS[key].response, version, frame, 5 if flexible else 4))
            position += 4 + size
        return found

    def answer(self) -> Any:
        """The one response that has come."""
        found = self.answers()
        assert len(found) == 1, found
        return found[0]

    def ask(self, key: int, request: Message, version: int = -1) -> Any:
        """Send a request, let everything work that can without time passing, and take the one response."""
        self.send(key, request, version)
        self.settle()
        return self.answer()
