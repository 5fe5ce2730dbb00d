"""One client connection: frames out of bytes, responses in the order of requests.

A Kafka frame is a 4-byte big-endian size and that many bytes. All connections receive into one shared buffer; only a
frame that has not arrived whole gets memory of its own, of exactly its size, after that size was checked and reserved.

| receiving into | when | what happens to the bytes |
|---|---|---|
| shared buffer | between frames | whole frames are handled in place, the cut one moves to its own memory |
| own memory | inside a frame | handled when full, then released |

When a frame stops the reading, what came behind it waits in memory of its own too. Answers to frames that came in one
read go out in one send.

Lives here: framing, order, back-pressure. Must never come in: what the bytes mean (dispatcher).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

from edge_broker.errors import ProtocolViolation

RECEIVE_BUFFER_BYTES = 262_144
UNANSWERED_MAX = 256
WRITE_BUFFER_BYTES_MAX = 4 * 1024 * 1024
JOINED_BYTES_MAX = 65_536

Buffers = list[bytes | memoryview]


class Exchange:
    """One request on its way to an answer; `frame` is None until then."""

    __slots__ = ("connection", "frame", "kept_bytes", "token")

    def __init__(self, connection: Connection, token: int) -> None:
        self.connection = connection
        self.token = token
        self.frame: Buffers | None = None
        self.kept_bytes = 0

    def answer(self, frame: Buffers) -> None:
        """Give the response (an empty list for none) and send all that is now in order."""
        self.frame = frame
        connection = self.connection
        if connection.gathers or (connection.unanswered and connection.unanswered[0] is not self):
            connection.keep(self)
        else:
            connection.flush()


class Owner(Protocol):
    """What a connection needs of the server that accepted it."""

    receive_buffer: memoryview
    request_bytes_max: int
    bytes_out: int

    def opened(self, connection: Connection) -> bool:
        """Register a connection; False refuses it."""

    def closed(self, connection: Connection) -> None:
        """The connection is gone."""

    def received(self, connection: Connection, frame: memoryview) -> None:
        """A whole request without its size field; valid only during the call. ProtocolViolation closes the
        connection.
        """

    def reserve(self, connection: Connection, size: int) -> bool:
        """Set memory aside for a half-received frame; False when there is none left."""

    def release(self, size: int) -> None:
        """Give such memory back."""

    def violated(self, connection: Connection, violation: ProtocolViolation) -> None:
        """Count and log a violation; the connection closes itself."""

    def soon(self, call: Callable[[], None]) -> None:
        """Call in the next turn of the loop."""


class Connection(asyncio.BufferedProtocol):
    """Frames in, responses out, in order; owned by the loop."""

    __slots__ = (
        "_backlog",
        "_filled",
        "_halted",
        "_header",
        "_holds",
        "_kept_bytes",
        "_own",
        "_own_view",
        "_paused",
        "_writing_paused",
        "gathers",
        "last_active",
        "on_close",
        "owner",
        "peer",
        "transport",
        "unanswered",
    )

    def __init__(self, owner: Owner, now: Callable[[], float]) -> None:
        self.owner = owner
        self.transport: asyncio.Transport | None = None
        self.peer = ""
        self.unanswered: deque[Exchange] = deque()
        self.on_close: dict[int, Callable[[], None]] = {}
        self.last_active = now()
        self.gathers = False  # answers wait for those to the frames that came in the same read
        self._header = bytearray()
        self._own: bytearray | None = None
        self._own_view: memoryview | None = None
        self._filled = 0
        self._backlog: bytearray | None = None
        self._halted = False
        self._holds = 0
        self._kept_bytes = 0
        self._paused = False
        self._writing_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport and register, or close at once when the broker is full."""
        self.transport = cast(asyncio.Transport, transport)
        address = transport.get_extra_info("peername")
        self.peer = f"{address[0]}:{address[1]}" if isinstance(address, tuple) else "local"
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_MAX)
        if not self.owner.opened(self):
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget everything that waited for this client."""
        self.transport = None
        self._drop_own()
        self._take_backlog()
        self.unanswered.clear()
        for call in list(self.on_close.values()):
            call()
        self.on_close.clear()
        self.owner.closed(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go: the rest of a begun frame, else the shared buffer."""
        if self._own_view is not None:
            return self._own_view[self._filled :]
        return self.owner.receive_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Handle what arrived; a violation closes this connection and no other."""
        if self._halted:
            return
        try:
            if self._own is not None:
                self._fill_own(nbytes)
            else:
                self._take_frames(self.owner.receive_buffer[:nbytes])
        except ProtocolViolation as violation:
            self.violate(violation)

    def violate(self, violation: ProtocolViolation) -> None:
        """Close this connection for what came over it."""
        self.owner.violated(self, violation)
        self.abort()

    def _fill_own(self, nbytes: int) -> None:
        self._filled += nbytes
        assert self._own is not None
        if self._filled == len(self._own):
            view = memoryview(self._own)
            try:
                self.owner.received(self, view)
            finally:
                self._drop_own()

    def _take_frames(self, data: memoryview) -> None:
        position, end = 0, len(data)
        while self._header:  # the size field itself was cut in two by the last read
            take = min(4 - len(self._header), end - position)
            self._header += data[position : position + take]
            position += take
            if len(self._header) < 4:
                return
            size = int.from_bytes(self._header, "big", signed=True)
            self._header.clear()
            position = self._take_frame(data, position, end, size)
        try:
            while end - position >= 4 and not self.closing:
                if self._paused:
                    self._put_back(data[position:end])
                    return
                size = int.from_bytes(data[position : position + 4], "big", signed=True)
                self.gathers = position + size + 8 <= end  # there is more to answer at once
                position = self._take_frame(data, position + 4, end, size)
        finally:
            self.gathers = False
            if self.unanswered and self.unanswered[0].frame is not None:
                self.flush()
        if position < end:
            self._header += data[position:end]

    def _put_back(self, data: memoryview) -> None:
        """Keep what came with the request that stopped the reading; a buffer holds thousands of small ones."""
        if not self.owner.reserve(self, len(data)):
            raise ProtocolViolation(f"no memory left for {len(data)} bytes of requests; send fewer at once")
        self._backlog = bytearray(data)

    def _take_backlog(self) -> bytearray:
        backlog, self._backlog = self._backlog or bytearray(), None
        self.owner.release(len(backlog))
        return backlog

    def _go_on(self) -> None:
        """Handle what was put back, then read again, unless that stopped the reading once more."""
        if self.closing or self._paused:
            return
        try:
            self._take_frames(memoryview(self._take_backlog()))
        except ProtocolViolation as violation:
            self.violate(violation)
        if not self._paused and self.transport is not None and not self.closing:
            self.transport.resume_reading()

    def _take_frame(self, data: memoryview, position: int, end: int, size: int) -> int:
        """Handle or begin the frame of `size` bytes at `position`; the position behind what was used."""
        if not 0 < size <= self.owner.request_bytes_max:
            raise ProtocolViolation(
                f"a request of {size} bytes; 1 to {self.owner.request_bytes_max} are allowed (socket.request.max.bytes)"
            )
        if size <= end - position:
            self.owner.received(self, data[position : position + size])
            return position + size
        if not self.owner.reserve(self, size):
            raise ProtocolViolation(f"no memory left for a request of {size} bytes; raise queued.max.request.bytes")
        self._own = bytearray(size)
        self._own_view = memoryview(self._own)
        self._filled = end - position
        self._own_view[: self._filled] = data[position:end]
        return end

    def _drop_own(self) -> None:
        if self._own is not None:
            self.owner.release(len(self._own))
            self._own = None
            self._own_view = None
            self._filled = 0

    def expect(self, exchange: Exchange) -> None:
        """Queue a request for its turn; too many unanswered ones stop the reading."""
        self.unanswered.append(exchange)
        if len(self.unanswered) >= UNANSWERED_MAX:
            self._pause_reading()

    def keep(self, exchange: Exchange) -> None:
        """Hold an answer back until its turn; too many bytes of them stop the reading."""
        exchange.kept_bytes = sum(map(len, exchange.frame or ()))
        self._kept_bytes += exchange.kept_bytes
        if self._kept_bytes > WRITE_BUFFER_BYTES_MAX:
            self._pause_reading()

    def flush(self) -> None:
        """Send the answers that are next in order."""
        out: Buffers = []
        while self.unanswered and (frame := self.unanswered[0].frame) is not None:
            out += frame
            self._kept_bytes -= self.unanswered.popleft().kept_bytes
        if out and self.transport is not None:
            self._write(out)
        if len(self.unanswered) < UNANSWERED_MAX // 2:
            self._resume_reading()

    def _write(self, out: Buffers) -> None:
        assert self.transport is not None
        size = sum(map(len, out))
        self.owner.bytes_out += size
        if len(out) == 1:
            self.transport.write(out[0])
        elif size <= JOINED_BYTES_MAX:
            self.transport.write(b"".join(out))
        else:
            self.transport.writelines(out)

    def pause_writing(self) -> None:
        """The client does not read its answers: take no more requests from it."""
        self._writing_paused = True
        self._pause_reading()

    def resume_writing(self) -> None:
        """The client reads again."""
        self._writing_paused = False
        if len(self.unanswered) < UNANSWERED_MAX:
            self._resume_reading()

    def hold(self) -> None:
        """Take no more requests while one keeps a copy of its records; `let_go` ends it."""
        self._holds += 1
        self._pause_reading()

    def let_go(self) -> None:
        """End one `hold`."""
        self._holds -= 1
        if len(self.unanswered) < UNANSWERED_MAX:
            self._resume_reading()

    def halt(self) -> None:
        """Take no more requests at all; whoever halts closes, once those under way are answered.

        What still comes is read and dropped: closing a socket with unread bytes would reset it, and a reset may
        overtake the last answers.
        """
        self._halted = True
        self._drop_own()
        self._take_backlog()
        if self.transport is not None and not self.closing:
            self.transport.resume_reading()

    def _pause_reading(self) -> None:
        if not self._paused and not self._halted:
            self._paused = True
            if self.transport is not None and not self.closing:
                self.transport.pause_reading()

    def _resume_reading(self) -> None:
        if not self._paused or self._halted or self._writing_paused or self._holds or self.closing:
            return
        if self._kept_bytes > WRITE_BUFFER_BYTES_MAX:
            return
        self._paused = False
        if self._backlog is None and self.transport is not None:
            self.transport.resume_reading()
        else:  # not now: whoever answers here may be in the middle of serving others who wait
            self.owner.soon(self._go_on)

    @property
    def closing(self) -> bool:
        """True once nothing more will be read from or sent to this client."""
        return self.transport is None or self.transport.is_closing()

    def abort(self) -> None:
        """Close without waiting for what is still to be written."""
        if self.transport is not None:
            self.transport.abort()
