"""One client connection: frames out of bytes, responses in the order of requests.

A Kafka frame is a 4-byte big-endian size and that many bytes. All connections receive into one shared buffer; only a
frame that has not arrived whole gets memory of its own, which grows as its bytes come, never by the size it announces.

| receiving into | when | what happens to the bytes |
|---|---|---|
| shared buffer | between frames | whole frames are handled in place, the cut one moves to its own memory |
| own memory | inside a frame | handled when full, then released |

When a frame stops the reading, the bytes after it wait in memory of their own too. So does what is left after
FRAMES_PER_TURN frames, or one while others wait for their turn. Answers to frames of one turn go out in one send.

Nothing is read while one of these holds; each is checked again when it ends:

| what | ends |
|---|---|
| UNANSWERED_MAX requests unanswered | half of them are answered |
| WRITE_BUFFER_BYTES_MAX of answers unread or held back | the client reads; the earlier request is answered |
| `hold`: a request keeps its records, or is worked on slice by slice | `release` |
| requests are put back | they are handled |
| no memory (memory_budget.py) | there is some |

Contains: framing, order, back-pressure. Does not contain: what the bytes mean (dispatcher).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Protocol, cast

from edge_broker.broker.context import Session
from edge_broker.configuration.security_keys import PLAINTEXT
from edge_broker.errors import ProtocolViolation
from edge_broker.network.connection.memory_budget import ALLOWANCE_BYTES, Pool, Share
from edge_broker.network.connection.socket_low_water import mark_for, set_mark
from edge_broker.security.principals import ANONYMOUS

RECEIVE_BUFFER_BYTES = 262_144
UNANSWERED_MAX = 256
FRAMES_PER_TURN = 16
LOGIN_BYTES_MAX = 65_536
WRITE_BUFFER_BYTES_MAX = 4 * 1024 * 1024
JOINED_BYTES_MAX = 65_536
GROWTH_BYTES_MAX = 1 << 20
READ_BYTES_MAX = 1 << 17  # at once: the loop reads up to 32 times before others have their turn

_SIZE = Struct(">i").unpack_from
_ZEROS = memoryview(bytes(GROWTH_BYTES_MAX))  # never written to, so it takes address space alone

Buffers = list[bytes | memoryview]


class Exchange:
    """One request on its way to an answer; `frame` is None until then, `cost` its bytes of the requests' pool.

    `when_first` is called once all before it are answered.
    """

    __slots__ = ("cost", "frame", "kept_bytes", "when_first")

    def __init__(self, cost: int = 0) -> None:
        self.cost = cost
        self.frame: Buffers | None = None
        self.kept_bytes = 0
        self.when_first: Callable[[], None] | None = None


class Owner(Protocol):
    """The server of a connection, as the connection uses it."""

    receive_buffer: memoryview
    request_bytes_max: int
    bytes_out: int
    ring: deque[Connection]  # of connections that wait for their turn
    requests: Pool
    answers: Pool

    def connection_opened(self, connection: Connection) -> bool:
        """Register a connection; False refuses it."""

    def connection_closed(self, connection: Connection) -> None:
        """The connection is gone."""

    def request_received(self, connection: Connection, frame: memoryview) -> None:
        """Handle a request, without its size field; ProtocolViolation closes the connection.

        The frame is valid only during the call, unless it is memory of its own.
        """

    def urgent(self, head: memoryview) -> bool:
        """Whether the request that begins like this un-parks others, and so never waits for what is parked."""

    def request_begun(self, connection: Connection) -> None:
        """A request has not arrived whole."""

    def unread_changed(self, connection: Connection, unread_bytes: int) -> None:
        """So much of what was written to this client has not left yet."""

    def protocol_violated(self, connection: Connection, violation: ProtocolViolation) -> None:
        """Count and log a violation; the connection closes itself."""

    def due(self, connection: Connection) -> None:
        """Call `turn` in a next turn of the loop, when those before have had theirs."""


class Connection(asyncio.BufferedProtocol):
    """Frames in, responses out, in order; owned by the loop."""

    __slots__ = (
        "_backlog",
        "_filled",
        "_halted",
        "_header",
        "_holds",
        "_kept_bytes",
        "_mark_bytes",
        "_next_in_backlog",
        "_own",
        "_own_bytes",
        "_own_size",
        "_patient",
        "_paused",
        "_reading",
        "_room_bytes",
        "_took_bytes",
        "_turn_due",
        "_urgent",
        "_waits_for_memory",
        "_writing_paused",
        "answers",
        "bytes_written",
        "gathers",
        "last_active",
        "on_close",
        "owner",
        "requests",
        "session",
        "transport",
        "unanswered",
        "work_seconds",
    )

    def __init__(self, owner: Owner, now: Callable[[], float], listener: str = PLAINTEXT) -> None:
        self.owner = owner
        self.transport: asyncio.Transport | None = None
        self.session = Session("", listener=listener)
        self.unanswered: deque[Exchange] = deque()
        self.on_close: dict[int, Callable[[], None]] = {}
        self.last_active = now()
        self.requests = Share(owner.requests)
        self.answers = Share(owner.answers)
        self.bytes_written = 0
        self.work_seconds = 0.0  # of the loop, for its requests that were worked on slice by slice
        self.gathers = False  # answers wait for those to the frames of the same turn
        self._header = bytearray()
        self._own: bytearray | None = None
        self._own_size = 0  # of the frame
        self._own_bytes = 0  # reserved for it
        self._filled = 0
        self._urgent = False
        self._backlog: memoryview | None = None
        self._next_in_backlog = 0
        self._halted = False
        self._holds = 0
        self._kept_bytes = 0
        self._mark_bytes = 1  # for so many the loop is woken
        self._patient = True  # False: the request that is begun is read as it comes
        self._paused = False
        self._reading = True
        self._room_bytes = 0
        self._took_bytes = False
        self._turn_due = False
        self._waits_for_memory = False
        self._writing_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport and register, or close at once when the broker is full or the client has left already.

        A client that has left has no address any more, though its bytes are there: its permissions would be unknown.
        """
        self.transport = cast(asyncio.Transport, transport)
        address = transport.get_extra_info("peername")
        if not address:
            self.transport.abort()
            return
        shown = transport.get_extra_info("shown")
        self.session = Session(
            f"{address[0]}:{address[1]}",
            principal=(shown and shown.principal) or ANONYMOUS,
            listener=self.session.listener,
            secure=transport.get_extra_info("ssl_object") is not None,
        )
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_MAX)
        if not self.owner.connection_opened(self):
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget everything that waited for this client."""
        self.transport = None
        self._own = self._backlog = None
        self._own_bytes = 0
        self.unanswered.clear()
        for call in list(self.on_close.values()):
            call()
        self.on_close.clear()
        self.requests.give_all()
        self.answers.give_all()
        self.requests.pool.forget(self)
        self.owner.connection_closed(self)

    # bytes in

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go: the rest of a begun frame, else the shared buffer."""
        own = self._own
        if own is None:
            buffer = self.owner.receive_buffer
            if self.requests.pool.short:
                buffer = buffer[:ALLOWANCE_BYTES]
            self._room_bytes = len(buffer)
            return buffer
        while len(own) < self._own_bytes:
            own += _ZEROS[: self._own_bytes - len(own)]
        buffer = memoryview(own)[self._filled : self._filled + READ_BYTES_MAX]
        self._room_bytes = len(buffer)
        return buffer

    def make_room(self, nbytes: int) -> None:
        """So many bytes are here and about to come: those of a begun frame get memory at once, if there is some."""
        if self._own is not None:
            wanted = min(self._own_size, self._filled + nbytes) - self._own_bytes
            if wanted > 0 and self.requests.fits(wanted):
                self._own_bytes += wanted
                self.requests.take(wanted)

    def buffer_updated(self, nbytes: int) -> None:
        """Handle what arrived; a violation closes this connection and no other."""
        if self._halted:
            return
        try:
            if self._own is not None:
                self._fill_own(nbytes)
            else:
                data = self.owner.receive_buffer[:nbytes]
                position = self._take_frames(data, 0, 1 if self.owner.ring else FRAMES_PER_TURN)
                if position < nbytes and not self.closing and not self._halted:
                    self._put_back(data[position:])
        except ProtocolViolation as violation:
            self.violate(violation)
            return
        if not self.session.secure:  # else who decrypts says when
            self.wait_for_more(0, drained=nbytes < self._room_bytes)

    def wait_for_more(self, ahead_bytes: int, *, drained: bool) -> None:
        """Have the loop woken once the rest of a begun request is there, of which `ahead_bytes` may have come already.

        `drained`: nothing more is in the socket.
        """
        own, rest = self._own, 0
        if own is not None and self._patient and not self._waits_for_memory and not self.requests.pool.short:
            rest = self._own_size - self._filled - ahead_bytes
        self._wake_for(mark_for(rest), drained=drained)

    def read_as_it_comes(self) -> None:
        """Have the loop woken for each byte of the request that is begun: it comes slowly, or is to be dropped."""
        self._patient = False
        self._wake_for(1, drained=False)

    def _wake_for(self, nbytes: int, *, drained: bool) -> None:
        """Set the socket's mark; as long as more may be in the socket it only falls, to a byte, if it is too high."""
        if not drained:
            nbytes = 1 if nbytes < self._mark_bytes else self._mark_bytes
        if nbytes != self._mark_bytes and self.transport is not None and not self.transport.is_closing():
            self._mark_bytes = nbytes
            set_mark(self.transport, nbytes)

    def violate(self, violation: ProtocolViolation) -> None:
        """Close this connection for what came over it."""
        self.owner.protocol_violated(self, violation)
        self.abort()

    def _take_frames(self, data: memoryview, position: int, frames_max: int) -> int:
        """Handle the frames from `position` on, so many at most; the position of what is left to do."""
        end = len(data)
        frames = 0
        while self._header:  # the size field itself was cut in two by the last read
            take = min(4 - len(self._header), end - position)
            self._header += data[position : position + take]
            position += take
            if len(self._header) < 4:
                return position
            (size,) = _SIZE(self._header)
            self._header.clear()
            position = self._take_frame(data, position, end, size)
            frames += 1
        try:
            while end - position >= 4:
                if frames and self.closing:
                    return end
                if frames == frames_max:
                    return position
                frames += 1
                if self._paused or (self.requests.pool.short and self._must_wait(data[position + 4 : position + 6])):
                    return position
                (size,) = _SIZE(data, position)
                self.gathers = position + size + 8 <= end  # there is more to answer at once
                position = self._take_frame(data, position + 4, end, size)
        finally:
            self.gathers = False
            if self.unanswered and self.unanswered[0].frame is not None:
                self.flush()
        if position < end and not self.closing:
            self._header += data[position:end]
        return end

    def _must_wait(self, head: memoryview) -> bool:
        """When memory is short a connection handles one request at a time, and what un-parks others at once."""
        if not self.unanswered or self.owner.urgent(head):
            return False
        self._await_memory()
        return True

    def _take_frame(self, data: memoryview, position: int, end: int, size: int) -> int:
        """Handle or begin the frame of `size` bytes at `position`; the position after it."""
        login = self.session.login
        if login is not None and not login.user and size > LOGIN_BYTES_MAX:
            raise ProtocolViolation(f"a request of {size} bytes before the log-in; {LOGIN_BYTES_MAX} are allowed")
        if not 0 < size <= self.owner.request_bytes_max:
            raise ProtocolViolation(
                f"a request of {size} bytes; 1 to {self.owner.request_bytes_max} are allowed (socket.request.max.bytes)"
            )
        if size <= end - position:
            self.owner.request_received(self, data[position : position + size])
            return position + size
        self._begin_own(data[position:end], size)
        return end

    def _begin_own(self, head: memoryview, size: int) -> None:
        """Keep the head of a frame; what has come must be held, whatever memory there is."""
        self._filled, self._own_size = len(head), size
        self._own_bytes = min(size, max(ALLOWANCE_BYTES // 2, len(head)))
        self._own = bytearray(self._own_bytes)
        self._own[: len(head)] = head
        self._urgent = self.owner.urgent(head)
        self.requests.take(self._own_bytes)
        self.owner.request_begun(self)
        if self._filled == self._own_bytes:
            self._grow_own()

    def _fill_own(self, nbytes: int) -> None:
        assert self._own is not None
        self._filled += nbytes
        self._took_bytes = True
        if self._filled == self._own_size:
            view = memoryview(self._own)
            self._own, self._patient = None, True
            try:
                self.owner.request_received(self, view)
            finally:
                self._end_own()
        elif self._filled == self._own_bytes:
            self._grow_own()

    def _end_own(self) -> None:
        if self._own_bytes:
            size, self._own_bytes, self._filled, self._own = self._own_bytes, 0, 0, None
            self.requests.give(size)
            self.requests.pool.forget(self)

    def _grow_own(self) -> None:
        """Reserve as much again as has come, or wait until there is memory for it."""
        rest = self._own_size - self._own_bytes
        wanted = min(rest, self._own_bytes, GROWTH_BYTES_MAX)
        if self.requests.fits(wanted, urgent=self._urgent) or self.requests.pool.go_ahead(self.requests, rest):
            self._own_bytes += wanted
            self.requests.take(wanted)
        else:
            self._await_memory()

    def _await_memory(self) -> None:
        self._waits_for_memory = True
        self._stop_reading()
        self.requests.pool.wait(self, self._memory_came)

    def _memory_came(self) -> None:
        self._waits_for_memory = False
        if self.closing or self._halted:
            return
        if self._own is not None:
            self._grow_own()
        self._handle_backlog()

    def _put_back(self, data: memoryview) -> None:
        """Keep what came with the request that stopped the reading; a buffer holds thousands of small ones."""
        self.requests.take(len(data))
        self._backlog, self._next_in_backlog = memoryview(bytearray(data)), 0
        self._stop_reading()
        if not self._paused and not self._waits_for_memory:
            self._due()

    def _drop_backlog(self) -> None:
        if self._backlog is not None:
            size, self._backlog = len(self._backlog), None
            self.requests.give(size)

    def _due(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            self.owner.due(self)

    def turn(self) -> None:
        """Handle some of what was put back."""
        self._turn_due = False
        self._handle_backlog()

    def _handle_backlog(self) -> None:
        """Handle some of what was put back, then read again, unless that stopped the reading once more.

        As long as something is put back nothing is read: it would be taken for what comes next.
        """
        if self.closing or self._paused or self._halted or self._waits_for_memory:
            return
        if self._backlog is not None:
            try:
                backlog = self._backlog
                self._next_in_backlog = self._take_frames(backlog, self._next_in_backlog, FRAMES_PER_TURN)
                if self._next_in_backlog == len(backlog):
                    self._drop_backlog()
                elif not self._paused and not self._waits_for_memory:
                    self._due()
            except ProtocolViolation as violation:
                self.violate(violation)
        self._read_on()

    # answers out

    def expect(self, exchange: Exchange) -> None:
        """Queue a request for its turn; too many unanswered ones stop the reading."""
        self.unanswered.append(exchange)
        self.requests.take(exchange.cost)
        if len(self.unanswered) >= UNANSWERED_MAX:
            self._pause()

    def is_first(self, exchange: Exchange) -> bool:
        """True when its answer would be sent at once."""
        return bool(self.unanswered) and self.unanswered[0] is exchange

    def answer(self, exchange: Exchange, frame: Buffers) -> None:
        """Give the response to a request (an empty list for none) and send all that is now in order."""
        exchange.frame = frame
        if self.gathers or (self.unanswered and self.unanswered[0] is not exchange):
            self._keep(exchange, frame)
        else:
            self.flush()

    def close(self) -> None:
        """Close once what is answered has gone out."""
        self.gathers = False
        self.flush()
        self.read_as_it_comes()
        if self.transport is not None:
            self.transport.close()

    def _keep(self, exchange: Exchange, frame: Buffers) -> None:
        """Hold an answer back until its turn; too many bytes of them stop the reading."""
        exchange.kept_bytes = size = sum(map(len, frame))
        self._kept_bytes += size
        self.answers.take(size)
        if self._kept_bytes > WRITE_BUFFER_BYTES_MAX:
            self._pause()

    def flush(self) -> None:
        """Send the answers that are next in order."""
        out: Buffers = []
        unanswered, cost, kept_bytes = self.unanswered, 0, 0
        while unanswered and (frame := unanswered[0].frame) is not None:
            out += frame
            exchange = unanswered.popleft()
            cost += exchange.cost
            kept_bytes += exchange.kept_bytes
        if cost:
            self.requests.give(cost)
        if out and self.transport is not None:
            self._write(out)
        if kept_bytes:  # not before: what the kernel did not take counts from here to there
            self._kept_bytes -= kept_bytes
            self.answers.give(kept_bytes)
        if self.answers.pool.ahead_bytes and self.answers.held <= ALLOWANCE_BYTES:
            self.answers.pool.end(self.answers)  # the kernel took all of it at once
        if unanswered and (call := unanswered[0].when_first) is not None:
            unanswered[0].when_first = None
            self.answers.pool.soon(call)
        if self._paused and len(unanswered) < UNANSWERED_MAX // 2:
            self._unpause()

    def _write(self, buffers: Buffers) -> None:
        transport, owner = self.transport, self.owner
        assert transport is not None
        if len(buffers) == 1:
            size = len(buffers[0])
            transport.write(buffers[0])
        else:
            size = sum(map(len, buffers))
            if size <= JOINED_BYTES_MAX:
                transport.write(b"".join(buffers))
            else:
                transport.writelines(buffers)
        owner.bytes_out += size
        self.bytes_written += size
        unread_bytes = transport.get_write_buffer_size()
        if unread_bytes > ALLOWANCE_BYTES:
            owner.unread_changed(self, unread_bytes)

    def pause_writing(self) -> None:
        """The client does not read its answers: take no more requests from it."""
        self._writing_paused = True
        self._pause()

    def resume_writing(self) -> None:
        """The client reads again."""
        self._writing_paused = False
        self._unpause()

    # stopping and going on

    def hold(self) -> None:
        """Take no more requests while one keeps a copy of its records; `release` ends it."""
        self._holds += 1
        self._pause()

    def release(self) -> None:
        """End one `hold`."""
        self._holds -= 1
        self._unpause()

    def halt(self) -> None:
        """Take no more requests at all; the caller closes, once those in progress are answered.

        Further bytes are read and dropped: closing a socket with unread bytes would reset it, and a reset may
        overtake the last answers.
        """
        self._halted = True
        self.read_as_it_comes()
        self._end_own()
        self._drop_backlog()
        self.requests.pool.forget(self)
        if self.transport is not None and not self.closing and not self._reading:
            self._reading = True
            self.transport.resume_reading()

    def _pause(self) -> None:
        self._paused = True
        self._stop_reading()

    def _unpause(self) -> None:
        if not self._paused or self._writing_paused or self._holds or self.closing:
            return
        if len(self.unanswered) >= UNANSWERED_MAX or self._kept_bytes > WRITE_BUFFER_BYTES_MAX:
            return
        self._paused = False
        if self._backlog is None:
            self._read_on()
        elif not self._waits_for_memory:
            self._due()  # not now: the caller may be in the middle of waking others

    def _stop_reading(self) -> None:
        if self._reading and not self._halted:
            self._reading = False
            if self.transport is not None and not self.closing:
                self.transport.pause_reading()

    def _read_on(self) -> None:
        if self._reading or self._paused or self._waits_for_memory or self._backlog is not None or self.closing:
            return
        self._reading = True
        assert self.transport is not None
        self.transport.resume_reading()

    @property
    def half(self) -> bool:
        """True while a request has not arrived whole."""
        return self._own is not None

    def took_bytes(self) -> bool:
        """Whether bytes of such a request have come since this was last asked."""
        took, self._took_bytes = self._took_bytes, False
        return took

    @property
    def waits_for_memory(self) -> bool:
        """True while it is not the client that is waited for."""
        return self._waits_for_memory

    @property
    def closing(self) -> bool:
        """True once nothing more will be read from or sent to this client."""
        return self.transport is None or self.transport.is_closing()

    def abort(self) -> None:
        """Close without waiting for what is still to be written."""
        if self.transport is not None:
            self.transport.abort()
