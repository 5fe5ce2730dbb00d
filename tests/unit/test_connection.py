"""Framing and order: the same requests arrive however the bytes are cut, answers leave in the order of requests."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, cast

import pytest

from edge_broker.errors import ProtocolViolation
from edge_broker.network.connection import UNANSWERED_MAX, Connection, Exchange

FRAMES = [b"a", b"bc" * 10, b"d" * 300, b"e" * 70_000, b"f"]


class FakeTransport:
    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.reading = True
        self.aborted = False

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 4711) if name == "peername" else None

    def set_write_buffer_limits(self, high: int) -> None:
        self.high = high

    def write(self, data: bytes) -> None:
        self.sent.append(bytes(data))

    def writelines(self, parts: list[bytes]) -> None:
        self.sent.append(b"".join(parts))

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True


class FakeOwner:
    def __init__(self, buffer_bytes: int = 4096) -> None:
        self.receive_buffer = memoryview(bytearray(buffer_bytes))
        self.request_bytes_max = 100_000
        self.bytes_out = 0
        self.frames: list[bytes] = []
        self.reserved = 0
        self.memory = 200_000
        self.violations: list[str] = []

    def opened(self, connection: Connection) -> bool:
        return True

    def closed(self, connection: Connection) -> None:
        pass

    def received(self, connection: Connection, frame: memoryview) -> None:
        self.frames.append(bytes(frame))

    def reserve(self, connection: Connection, size: int) -> bool:
        self.reserved += size
        return self.reserved <= self.memory

    def release(self, size: int) -> None:
        self.reserved -= size

    def violated(self, connection: Connection, violation: ProtocolViolation) -> None:
        self.violations.append(str(violation))


def connected(owner: FakeOwner) -> tuple[Connection, FakeTransport]:
    connection = Connection(owner, lambda: 0.0)
    transport = FakeTransport()
    connection.connection_made(cast(Any, transport))
    return connection, transport


def feed(connection: Connection, data: bytes, cuts: list[int]) -> None:
    position = 0
    for cut in [*cuts, len(data)]:
        while position < cut:
            buffer = connection.get_buffer(-1)
            take = min(len(buffer), cut - position)
            buffer[:take] = data[position : position + take]
            connection.buffer_updated(take)
            position += take


def wire(frames: list[bytes]) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


@pytest.mark.parametrize("seed", range(25))
def test_frames_survive_any_cutting(seed: int) -> None:
    owner = FakeOwner()
    connection, _ = connected(owner)
    data = wire(FRAMES)
    chance = random.Random(seed)
    feed(connection, data, sorted(chance.randrange(len(data)) for _ in range(chance.randrange(40))))
    assert owner.frames == FRAMES
    assert owner.reserved == 0


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
    assert owner.reserved == 0
    assert str(size) in owner.violations[0]


def test_no_memory_left_closes_this_connection() -> None:
    owner = FakeOwner()
    owner.memory = 10
    connection, transport = connected(owner)
    feed(connection, (50_000).to_bytes(4, "big") + b"x", [])
    assert transport.aborted
    assert "queued.max.request.bytes" in owner.violations[0]


def test_lost_connection_gives_its_memory_back() -> None:
    owner = FakeOwner()
    connection, _ = connected(owner)
    feed(connection, (50_000).to_bytes(4, "big") + b"x", [])
    assert owner.reserved == 50_000
    connection.connection_lost(None)
    assert owner.reserved == 0


def test_answers_leave_in_order() -> None:
    connection, transport = connected(FakeOwner())
    exchanges = [Exchange(connection, token) for token in range(3)]
    for exchange in exchanges:
        connection.expect(exchange)
    exchanges[2].answer([b"third"])
    exchanges[1].answer([])  # acks=0: nothing to send, yet it must not hold up the next
    assert transport.sent == []
    exchanges[0].answer([b"first"])
    assert transport.sent == [b"firstthird"]


class EchoOwner(FakeOwner):
    """Answers each frame at once with itself; `bad` is no request."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Callable[[], None]] = []

    def soon(self, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def received(self, connection: Connection, frame: memoryview) -> None:
        if bytes(frame) == b"bad":
            raise ProtocolViolation("no request")
        exchange = Exchange(connection, 0)
        connection.expect(exchange)
        exchange.answer([bytes(frame)])


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


def test_gathered_answers_are_bounded() -> None:
    owner = EchoOwner()
    owner.receive_buffer = memoryview(bytearray(1 << 20))
    connection, transport = connected(owner)
    frames = wire([b"x"] * (2 * UNANSWERED_MAX))
    feed(connection, frames, [])
    assert transport.sent == [b"x" * UNANSWERED_MAX]
    assert owner.reserved == len(frames) // 2, "the rest waits for the next turn of the loop"
    while owner.calls:
        owner.calls.pop(0)()
    assert transport.sent == [b"x" * UNANSWERED_MAX] * 2
    assert owner.reserved == 0


def test_too_many_unanswered_requests_stop_the_reading() -> None:
    connection, transport = connected(FakeOwner())
    exchanges = [Exchange(connection, token) for token in range(UNANSWERED_MAX)]
    for exchange in exchanges:
        connection.expect(exchange)
    assert not transport.reading
    for exchange in exchanges:
        exchange.answer([b"."])
    assert transport.reading


def test_client_that_does_not_read_is_not_read_from() -> None:
    connection, transport = connected(FakeOwner())
    connection.pause_writing()
    assert not transport.reading
    connection.resume_writing()
    assert transport.reading
