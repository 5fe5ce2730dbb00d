"""Framing and order: the same requests arrive however the bytes are cut, answers leave in the order of requests."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import pytest

from edge_broker.errors import ProtocolViolation
from edge_broker.network.connection.connection import FRAMES_PER_TURN, UNANSWERED_MAX, Connection, Exchange
from edge_broker.network.connection.memory_budget import ALLOWANCE_BYTES, Pool
from edge_broker.network.server.listener_server import SWEEP_S
from edge_broker.testing.site import Site

FRAMES = [b"a", b"bc" * 10, b"d" * 300, b"e" * 70_000, b"f"]


class FakeSocket:
    """What the kernel is told."""

    family = None

    def __init__(self) -> None:
        self.marks: list[int] = []

    def setsockopt(self, level: int, option: int, value: int) -> None:
        assert (level, option) == (socket.SOL_SOCKET, socket.SO_RCVLOWAT)
        self.marks.append(value)


class FakeTransport:
    def __init__(self, *, secure: bool = False) -> None:
        self.sock = FakeSocket()
        self.secure = secure
        self.sent: list[bytes] = []
        self.reading = True
        self.aborted = False

    def get_extra_info(self, name: str) -> Any:
        found = {"peername": ("127.0.0.1", 4711), "socket": self.sock}
        return found.get(name, True if self.secure and name == "ssl_object" else None)

    def set_write_buffer_limits(self, high: int) -> None:
        self.high = high

    def write(self, data: bytes) -> None:
        self.sent.append(bytes(data))

    def writelines(self, parts: list[bytes]) -> None:
        self.sent.append(b"".join(parts))

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.aborted

    def close(self) -> None:
        assert self.sock.marks[-1:] in ([], [1]), "unread bytes would reset the connection"
        self.aborted = True

    def abort(self) -> None:
        self.aborted = True


class FakeOwner:
    def __init__(self, buffer_bytes: int = 4096) -> None:
        self.receive_buffer = memoryview(bytearray(buffer_bytes))
        self.request_bytes_max = 100_000
        self.bytes_out = 0
        self.ring: deque[Connection] = deque()
        self.frames: list[bytes] = []
        self.calls: list[Callable[[], None]] = []
        self.requests = Pool(200_000, self.calls.append, spare_bytes=100_000)
        self.answers = Pool(1 << 30, self.calls.append, spare_bytes=0)
        self.violations: list[str] = []

    def connection_opened(self, connection: Connection) -> bool:
        return True

    def connection_closed(self, connection: Connection) -> None:
        pass

    def request_received(self, connection: Connection, frame: memoryview) -> None:
        self.frames.append(bytes(frame))

    def urgent(self, head: memoryview) -> bool:
        return bytes(head[:1]) == b"!"

    def request_begun(self, connection: Connection) -> None:
        pass

    def unread_changed(self, connection: Connection, unread_bytes: int) -> None:
        pass

    def due(self, connection: Connection) -> None:
        self.calls.append(connection.turn)

    def turns(self) -> None:
        """Let the loop turn until nothing is due."""
        while self.calls:
            self.calls.pop(0)()

    def protocol_violated(self, connection: Connection, violation: ProtocolViolation) -> None:
        self.violations.append(str(violation))


def connected(owner: FakeOwner, *, secure: bool = False) -> tuple[Connection, FakeTransport]:
    connection = Connection(owner, lambda: 0.0)
    transport = FakeTransport(secure=secure)
    connection.connection_made(cast(Any, transport))
    return connection, transport


def feed(connection: Connection, data: bytes, cuts: list[int]) -> None:
    """Bytes arrive, cut there, until the reading stops."""
    position = 0
    for cut in [*cuts, len(data)]:
        while position < cut and cast(Any, connection.transport).reading:
            buffer = connection.get_buffer(-1)
            take = min(len(buffer), cut - position)
            buffer[:take] = data[position : position + take]
            del buffer  # as the loop lets go of it: what it is a view of may grow
            connection.buffer_updated(take)
            position += take


def wire(frames: list[bytes]) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


def test_what_a_client_sent_that_has_left_already_is_not_served() -> None:
    """It has no address any more, and would be taken for somebody on this machine."""
    uvloop = pytest.importorskip("uvloop", reason="32-bit boards have none, and asyncio's own loop keeps the address")
    owner, accepted = FakeOwner(), []

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        owner.connection_opened = lambda connection: accepted.append(connection) is None  # type: ignore[method-assign]
        owner.connection_closed = lambda connection: ended.set()  # type: ignore[method-assign]
        server = await loop.create_server(lambda: Connection(owner, loop.time), "127.0.0.1", 0)
        client = socket.create_connection(server.sockets[0].getsockname())
        client.sendall(wire(FRAMES))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()  # a reset, before the loop has had a turn
        await ended.wait()
        server.close()

    uvloop.run(serve())
    assert (owner.frames, accepted) == ([], [])


@pytest.mark.parametrize("seed", range(25))
def test_frames_survive_any_cutting(seed: int) -> None:
    owner = FakeOwner()
    connection, _ = connected(owner)
    data = wire(FRAMES)
    chance = random.Random(seed)
    feed(connection, data, sorted(chance.randrange(len(data)) for _ in range(chance.randrange(40))))
    assert owner.frames == FRAMES
    assert (connection.requests.held, owner.requests.used) == (0, 0)


def test_frames_byte_by_byte() -> None:
    owner = FakeOwner()
    connection, _ = connected(owner)
    data = wire(FRAMES[:3])
    feed(connection, data, list(range(1, len(data))))
    assert owner.frames == FRAMES[:3]


@pytest.mark.parametrize("size", [0, -1, -(2**31), 100_001, 2**31 - 1])
def test_impossible_size_closes_before_anything_is_allocated(size: int) -> None:
    owner = FakeOwner()
    connection, transport = connected(owner)
    feed(connection, size.to_bytes(4, "big", signed=True) + b"xx", [])
    assert transport.aborted
    assert connection.requests.held == 0
    assert str(size) in owner.violations[0]


def begun(owner: FakeOwner, size: int, come: int) -> tuple[Connection, FakeTransport]:
    """A connection with a frame of `size` bytes, of which so many have come."""
    connection, transport = connected(owner)
    feed(connection, size.to_bytes(4, "big") + bytes(come), [])
    return connection, transport


def test_memory_is_reserved_as_bytes_arrive_not_as_they_are_announced() -> None:
    owner = FakeOwner()
    connection, _ = begun(owner, 100_000, 1)
    assert connection.requests.held <= ALLOWANCE_BYTES
    assert owner.requests.used == 0
    for come in (5_000, 20_000, 40_000):
        feed(connection, bytes(come), [])
        assert connection.requests.held <= 4 * come
    feed(connection, bytes(100_000 - 65_001), [])
    assert [len(frame) for frame in owner.frames] == [100_000]
    assert (connection.requests.held, owner.requests.used) == (0, 0)


def test_what_is_here_already_finds_room_at_once() -> None:
    owner = FakeOwner()
    connection, _ = connected(owner)
    connection.make_room(50_000)  # between frames there is the shared buffer
    assert owner.requests.used == 0
    feed(connection, wire([bytes(90_000)])[:1000], [])
    connection.make_room(40_000)
    assert len(connection.get_buffer(-1)) == 40_000
    connection.make_room(1 << 18)
    assert len(connection.get_buffer(-1)) == 90_000 - 996
    feed(connection, bytes(90_000 - 996), [])
    assert owner.frames == [bytes(90_000)]
    assert owner.requests.used == 0


def test_what_is_here_already_finds_no_room_beyond_the_bound() -> None:
    owner = FakeOwner()
    connection, transport = connected(owner)
    feed(connection, wire([bytes(90_000)])[:1000], [])
    owner.requests.add(180_000)
    connection.make_room(40_000)
    assert len(connection.get_buffer(-1)) < ALLOWANCE_BYTES
    assert transport.reading


def test_a_request_that_finds_no_memory_waits_for_it_and_is_not_closed() -> None:
    owner = FakeOwner()
    owner.requests.bytes_max = 60_000
    ahead, _ = begun(owner, 100_000, 60_000)
    connection, transport = begun(owner, 100_000, 4_000)
    feed(connection, bytes(100), [])
    assert not transport.reading
    assert not transport.aborted
    feed(ahead, bytes(40_000), [])
    owner.turns()
    assert transport.reading
    feed(connection, bytes(100_000 - connection._filled), [])
    assert [len(frame) for frame in owner.frames] == [100_000, 100_000]
    assert owner.requests.used == 0


def test_one_request_at_least_may_always_grow_to_its_end() -> None:
    owner = FakeOwner()
    owner.requests.bytes_max = 20_000
    others = [begun(owner, 100_000, 8_192) for _ in range(30)]
    growing = [transport for _, transport in others if transport.reading]
    assert len(growing) <= 3
    ended = 0
    for _ in range(100):
        for connection, transport in others:
            if transport.reading and connection.half:
                feed(connection, bytes(100), [])
        owner.turns()
        for connection, _ in others:
            if connection.requests in owner.requests.ahead_bytes:
                feed(connection, bytes(100_000 - connection._filled), [])
        owner.turns()
        ended = len(owner.frames)
        if ended == 30:
            break
    assert ended == 30, "each has its turn"


def test_who_went_ahead_of_the_bound_counts_until_it_is_answered() -> None:
    owner = FakeOwner()
    owner.requests.bytes_max, owner.requests.spare_bytes = 20_000, 150_000
    exchanges: list[tuple[Connection, Exchange]] = []

    def received(connection: Connection, frame: memoryview) -> None:
        exchanges.append((connection, Exchange(len(frame))))
        connection.expect(exchanges[-1][1])

    owner.request_received = received  # type: ignore[method-assign]
    others = [begun(owner, 50_000, 1_000) for _ in range(30)]
    for answered in range(30):
        for connection, transport in others:
            while transport.reading and connection.half:
                feed(connection, bytes(min(1_000, 50_000 - connection._filled)), [])
        owner.turns()
        assert owner.requests.used <= 20_000 + 150_000
        assert len(exchanges) > answered, "somebody gets on"
        asked, exchange = exchanges[answered]
        asked.answer(exchange, [b"done"])
        owner.turns()
    assert (owner.requests.used, owner.requests.ahead_bytes, owner.requests.waiting) == (0, {}, {})


def test_a_small_request_needs_nobody_elses_memory() -> None:
    owner = FakeOwner()
    owner.requests.add(owner.requests.bytes_max)
    connection, transport = connected(owner)
    data = wire([b"x" * 2000] * 20)
    feed(connection, data, [100, 2003, 2005, 2500])
    owner.turns()
    assert len(owner.frames) == 20
    assert not transport.aborted


def test_when_memory_is_short_what_unparks_others_goes_first() -> None:
    owner = FakeOwner()
    connection, _ = connected(owner)
    connection.expect(Exchange())
    owner.requests.add(owner.requests.bytes_max)
    feed(connection, wire([b"!urgent", b"other", b"!urgent"]), [])
    assert owner.frames == [b"!urgent"]
    owner.requests.remove(owner.requests.used)
    owner.turns()
    assert owner.frames == [b"!urgent", b"other", b"!urgent"]


def test_lost_connection_gives_its_memory_back() -> None:
    owner = FakeOwner()
    connection, _ = begun(owner, 50_000, 4_000)
    feed(connection, bytes(20_000), [])
    assert owner.requests.used > 0
    connection.connection_lost(None)
    assert owner.requests.used == 0


def test_answers_leave_in_order() -> None:
    connection, transport = connected(FakeOwner())
    exchanges = [Exchange() for _ in range(3)]
    for exchange in exchanges:
        connection.expect(exchange)
    connection.answer(exchanges[2], [b"third"])
    connection.answer(exchanges[1], [])  # acks=0: nothing to send, yet it must not hold up the next
    assert transport.sent == []
    connection.answer(exchanges[0], [b"first"])
    assert transport.sent == [b"firstthird"]


class EchoOwner(FakeOwner):
    """Answers each frame at once with itself; `bad` is no request."""

    def request_received(self, connection: Connection, frame: memoryview) -> None:
        if bytes(frame) == b"bad":
            raise ProtocolViolation("no request")
        exchange = Exchange()
        connection.expect(exchange)
        connection.answer(exchange, [bytes(frame)])


def test_answers_to_frames_of_one_read_leave_in_one_send() -> None:
    connection, transport = connected(EchoOwner())
    feed(connection, wire([b"a", b"b"]) + b"\0\0", [])
    assert transport.sent == [b"ab"]
    feed(connection, b"\0\1c", [])
    assert transport.sent == [b"ab", b"c"]


def test_what_was_right_is_answered_before_a_violation_closes() -> None:
    connection, transport = connected(EchoOwner())
    feed(connection, wire([b"a", b"bad", b"c"]), [])
    assert transport.sent == [b"a"]
    assert transport.aborted


def test_a_connection_has_so_many_requests_handled_in_one_turn() -> None:
    owner = EchoOwner()
    owner.receive_buffer = memoryview(bytearray(1 << 20))
    connection, transport = connected(owner)
    feed(connection, wire([b"x"] * (3 * FRAMES_PER_TURN)), [])
    assert transport.sent == [b"x" * FRAMES_PER_TURN]
    assert not transport.reading
    assert connection.requests.held == 5 * 2 * FRAMES_PER_TURN, "the rest waits for the next turns of the loop"
    owner.turns()
    assert transport.sent == [b"x" * FRAMES_PER_TURN] * 3
    assert transport.reading
    assert connection.requests.held == 0


@pytest.mark.parametrize("seed", range(25))
def test_what_was_put_back_is_handled_before_more_is_read(seed: int) -> None:
    """Many times what may be unanswered, cut anywhere, the loop's turns wherever chance puts them."""
    chance = random.Random(seed)
    owner = EchoOwner()
    owner.receive_buffer = memoryview(bytearray(chance.choice((7, 4096, 1 << 16))))
    connection, transport = connected(owner)
    frames = [str(number).encode() * chance.choice((1, 1, 1, 50)) for number in range(9 * UNANSWERED_MAX)]
    data, position = memoryview(wire(frames)), 0
    while position < len(data) or owner.calls:
        if owner.calls and (not transport.reading or chance.random() < 0.5):
            owner.calls.pop(0)()
        elif transport.reading and position < len(data):
            buffer = connection.get_buffer(-1)
            take = min(len(buffer), len(data) - position, chance.choice((1, 100, 1 << 16)))
            buffer[:take] = data[position : position + take]
            del buffer
            connection.buffer_updated(take)
            position += take
        else:
            raise AssertionError(f"stuck at byte {position}")
    assert not owner.violations
    assert b"".join(transport.sent) == b"".join(frames)
    assert connection.requests.held == 0


def test_too_many_unanswered_requests_stop_the_reading() -> None:
    connection, transport = connected(FakeOwner())
    exchanges = [Exchange() for _ in range(UNANSWERED_MAX)]
    for exchange in exchanges:
        connection.expect(exchange)
    assert not transport.reading
    for exchange in exchanges:
        connection.answer(exchange, [b"."])
    assert transport.reading


def test_client_that_does_not_read_is_not_read_from() -> None:
    connection, transport = connected(FakeOwner())
    connection.pause_writing()
    assert not transport.reading
    connection.resume_writing()
    assert transport.reading


def marks_of(connection: Connection, transport: FakeTransport, *pieces: bytes) -> list[list[int]]:
    """The marks that each of these bytes sets, which come one after another."""
    found = []
    for piece in pieces:
        del transport.sock.marks[:]
        feed(connection, piece, [])
        found.append(transport.sock.marks[:])
    return found


def test_the_loop_is_woken_for_the_rest_of_a_request_and_then_for_a_byte() -> None:
    connection, transport = connected(FakeOwner(1 << 18))
    data = wire([bytes(50_000)])
    head, more, most, rest = data[:1000], data[1000:2000], data[2000:40_000], data[40_000:]
    assert marks_of(connection, transport, head, more, most, rest) == [[32_768], [], [1, 10_004], [1]]
    assert marks_of(connection, transport, wire([b"x"])) == [[]]


def test_a_little_that_lacks_is_not_waited_for() -> None:
    connection, transport = connected(FakeOwner(1 << 18))
    data = wire([bytes(5000)])
    assert marks_of(connection, transport, data[:2], data[2:1000], data[1000:]) == [[], [], []]
    assert marks_of(connection, transport, data[:900], data[900:1000], data[1000:]) == [[4104], [1], []]


def test_the_next_request_that_has_begun_is_waited_for_at_once() -> None:
    connection, transport = connected(FakeOwner(1 << 18))
    data = wire([bytes(50_000), bytes(20_000)])
    assert marks_of(connection, transport, data[:1000], data[1000:60_000], data[60_000:]) == [
        [32_768],
        [1, 10_008],
        [1],
    ]


def test_the_mark_goes_down_but_not_up_as_long_as_more_is_in_the_socket() -> None:
    connection, transport = connected(FakeOwner(4096), secure=True)
    feed(connection, wire([bytes(50_000)])[:4096], [])
    connection.wait_for_more(0, drained=False)
    assert transport.sock.marks == []
    connection.wait_for_more(0, drained=True)
    connection.wait_for_more(40_000, drained=False)
    assert transport.sock.marks == [32_768, 1]


def test_a_buffer_that_was_filled_says_nothing_of_what_is_in_the_socket() -> None:
    connection, transport = connected(FakeOwner(4096))
    data = wire([bytes(50_000)])
    assert marks_of(connection, transport, data[:4096]) == [[]]
    assert marks_of(connection, transport, data[4096:5000])[0] == [32_768]


def test_a_request_that_comes_slowly_is_read_as_it_comes_and_the_next_one_is_not() -> None:
    connection, transport = connected(FakeOwner(1 << 18))
    data = wire([bytes(50_000)])
    feed(connection, data[:1000], [])
    connection.read_as_it_comes()
    assert transport.sock.marks == [32_768, 1]
    assert marks_of(connection, transport, data[1000:2000], data[2000:]) == [[], []]
    assert marks_of(connection, transport, data[:1000]) == [[32_768]]


def test_nothing_is_waited_for_while_memory_is_short() -> None:
    owner = FakeOwner(1 << 18)
    connection, transport = connected(owner)
    owner.requests.add(owner.requests.bytes_max)
    assert owner.requests.short
    assert marks_of(connection, transport, wire([bytes(50_000)])[:1000]) == [[]]


@pytest.mark.parametrize("end", ["halt", "close"])
def test_who_is_to_be_closed_is_read_as_it_comes_since_unread_bytes_would_reset_it(end: str) -> None:
    connection, transport = connected(FakeOwner(1 << 18))
    feed(connection, wire([bytes(50_000)])[:1000], [])
    getattr(connection, end)()
    assert transport.sock.marks == [32_768, 1]


def test_a_socket_that_is_closed_is_told_nothing() -> None:
    """Its number may be another's already."""
    connection, transport = connected(FakeOwner(1 << 18))
    feed(connection, wire([bytes(50_000)])[:1000], [])
    transport.abort()
    connection.read_as_it_comes()
    connection.wait_for_more(0, drained=True)
    assert transport.sock.marks == [32_768]


def test_who_decrypts_says_when_nothing_more_can_be_handed_on_and_what_it_holds() -> None:
    connection, transport = connected(FakeOwner(1 << 18), secure=True)
    assert marks_of(connection, transport, wire([bytes(50_000)])[:30_000]) == [[]]
    connection.wait_for_more(12_000, drained=True)
    connection.wait_for_more(20_000, drained=True)
    connection.wait_for_more(0, drained=False)
    assert transport.sock.marks == [8_004, 1]


def test_a_request_that_is_half_here_for_a_second_is_read_as_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    site, sock = Site(), FakeSocket()
    found = {"peername": ("127.0.0.1", 4711), "socket": sock}
    monkeypatch.setattr("edge_broker.testing.client.Transport.get_extra_info", lambda _, name: found.get(name))
    client = site.client()
    buffer = client.connection.get_buffer(-1)
    buffer[:1000] = wire([bytes(50_000)])[:1000]
    client.connection.buffer_updated(1000)
    assert sock.marks == [32_768]
    site.loop.advance(int(SWEEP_S * 1000) + 1)
    assert sock.marks == [32_768, 1]
