"""A connect that hangs is begun again and again, three at once at most; the first that is answered wins."""

from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from kafka_wire.connection import tcp_connect
from kafka_wire.connection.tcp_connect import (
    ANY_RATE,
    ATTEMPTS_MAX,
    THROUGH_LOSS,
    Tuning,
    begins_slowly,
    congestion_control,
    dial,
    first_of,
    read_link_fill,
    segments,
    set_congestion_control,
    set_rate_max,
)
from tests.support.ports import free_port
from tests.support.scripted_wire import until
from tests.support.waiting import CALL_S, wait_until

TUNING = Tuning(unsent_bytes_max=65_536, silent_s_max=10.0)
SYN_SENT = "02"


def connects(port):
    """The addresses here of those connects to a port that hang, by the kernel's own table."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {row[1] for row in rows if row[2].endswith(f":{port:04X}") and row[3] == SYN_SENT}


def hanging(port):
    """How many there are."""
    return len(connects(port))


class FullListener:
    """A port of loopback whose queue is full: a connect to it hangs until somebody is taken from the queue."""

    def __init__(self):
        self._stack = ExitStack()

    def __enter__(self):
        self._listener = self._stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        self.port = self._listener.getsockname()[1]
        self._stack.enter_context(socket.create_connection(("127.0.0.1", self.port)))
        return self

    def take(self):
        """Take one from the queue."""
        self._stack.enter_context(self._listener.accept()[0])

    def __exit__(self, *_error):
        self._stack.close()


async def test_a_connect_that_hangs_is_begun_again_and_the_first_that_is_answered_wins():
    with FullListener() as listener:
        dialled = asyncio.ensure_future(dial("127.0.0.1", listener.port, TUNING))
        seen = []

        def all_three():
            seen.append(hanging(listener.port))
            return seen[-1] == ATTEMPTS_MAX

        await until(all_three, "three attempts")
        assert seen == sorted(seen)
        listener.take()
        with await asyncio.wait_for(dialled, CALL_S) as connection:
            assert connection.getpeername() == ("127.0.0.1", listener.port)
            await until(lambda: hanging(listener.port) == 0, "the others are closed")


async def test_of_three_the_youngest_makes_room_and_the_others_are_left_open():
    with FullListener() as listener:
        dialled = asyncio.ensure_future(dial("127.0.0.1", listener.port, TUNING))
        seen = {}  # in the order in which they came
        most = 0

        def five():
            nonlocal most
            now = connects(listener.port)
            seen.update(dict.fromkeys(now))
            most = max(most, len(now))
            return len(seen) >= 5

        await until(five, "five attempts")
        assert set(list(seen)[:2]) <= connects(listener.port)
        assert most == ATTEMPTS_MAX
        dialled.cancel()
        await until(lambda: hanging(listener.port) == 0, "no attempt")


async def test_a_connect_that_was_sent_for_the_third_time_begins_slowly():
    with FullListener() as listener, socket.socket() as connection:
        connection.setblocking(False)
        connecting = asyncio.ensure_future(
            asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", listener.port))
        )
        await until(lambda: segments(connection)[1] >= 1, "it is sent again")
        listener.take()
        await connecting
        assert begins_slowly(connection)
    with socket.create_server(("127.0.0.1", 0)) as other, socket.create_connection(other.getsockname()) as connection:
        assert not begins_slowly(connection)


@pytest.mark.parametrize(("slow", "made"), [(1, 2), (9, 1)])
async def test_who_begins_slowly_is_a_spare_for_a_moment(slow, made, monkeypatch):
    """So many begin slowly; which one is had. Where no other comes in time it is the first."""
    answered = []
    monkeypatch.setattr(tcp_connect, "begins_slowly", lambda one: answered.append(one) or len(answered) <= slow)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = await dial("127.0.0.1", listener.getsockname()[1], TUNING)
        assert connection is answered[made - 1]
        await until(lambda: all(one.fileno() < 0 for one in answered if one is not connection), "others are closed")
        connection.close()


async def test_who_is_cancelled_leaves_no_attempt():
    with FullListener() as listener:
        dialled = asyncio.ensure_future(dial("127.0.0.1", listener.port, TUNING))
        await until(lambda: hanging(listener.port) == 1, "an attempt")
        dialled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dialled
        await until(lambda: hanging(listener.port) == 0, "no attempt")


async def test_the_next_address_is_tried_at_once_where_one_refuses():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = listener.getsockname()
        refusing = (socket.AF_INET, ("127.0.0.1", free_port()))
        nowhere = (socket.AF_INET6, ("2001:db8::1", here[1], 0, 0))
        with await first_of([refusing, refusing, nowhere, (socket.AF_INET, here)], TUNING) as connection:
            assert connection.getpeername() == here


async def test_every_address_may_refuse():
    with pytest.raises(ConnectionRefusedError):
        await dial("localhost", free_port(), TUNING)


async def test_ipv6():
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listener:
        port = listener.getsockname()[1]
        with await dial("::1", port, TUNING) as connection:
            assert connection.getpeername()[:2] == ("::1", port)


async def test_what_the_kernel_is_told():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = await dial("127.0.0.1", listener.getsockname()[1], TUNING)
        with connection:
            tcp = socket.IPPROTO_TCP
            assert connection.getsockopt(tcp, socket.TCP_NODELAY)
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert connection.getsockopt(tcp, socket.TCP_USER_TIMEOUT) == 10_000
            assert connection.getsockopt(tcp, socket.TCP_NOTSENT_LOWAT) == 65_536
            assert connection.getsockopt(tcp, socket.TCP_KEEPIDLE) == 5
            assert connection.getsockopt(tcp, socket.TCP_KEEPINTVL) == 1


def test_another_congestion_control_is_had_where_the_kernel_has_it_and_else_all_stays():
    with socket.socket() as connection:
        assert set_congestion_control(connection, "reno")
        assert congestion_control(connection) == "reno"
        assert not set_congestion_control(connection, "of-no-kernel")
        assert congestion_control(connection) == "reno"
    assert not set_congestion_control(connection, "reno")
    assert congestion_control(connection) == ""


def moved(listener, algorithm):
    """Both ends of a connection that has carried something by this algorithm, None where the kernel has it not."""
    near = socket.create_connection(listener.getsockname())
    far, _ = listener.accept()
    if not set_congestion_control(near, algorithm):
        near.close()
        far.close()
        return None
    for _ in range(20):
        near.sendall(b"x" * 1000)
        assert far.recv(1000, socket.MSG_WAITALL)
    return near, far


def test_bbr_tells_how_it_fills_a_link_and_others_do_not():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near, far = moved(listener, "reno")
        with near, far:
            assert read_link_fill(near) is None
        assert read_link_fill(near) is None, "it is closed"
        both = moved(listener, THROUGH_LOSS)
        if both is None:
            pytest.skip("this kernel has no BBR")
        with both[0], both[1]:
            told = read_link_fill(both[0])
            assert told.bytes_s > 1000
            assert 0 <= told.waits_s < 1
            assert 0 <= told.shortest_s < 1
            assert set_congestion_control(both[0], "reno")
            assert set_congestion_control(both[0], THROUGH_LOSS)
            both[0].sendall(b"x")
            assert both[1].recv(1) == b"x"
            wait_until(lambda: read_link_fill(both[0]), 10, "it has found a rate")
            assert read_link_fill(both[0]).begins


def test_a_rate_is_bounded_and_is_not_any_more():
    name, size = 47, 8  # SO_MAX_PACING_RATE
    with socket.socket() as connection:
        told = []
        for bytes_s in (90_000, None, ANY_RATE * 2):
            set_rate_max(connection, bytes_s)
            told.append(int.from_bytes(connection.getsockopt(socket.SOL_SOCKET, name, size), sys.byteorder))
    set_rate_max(connection, 1)
    assert told[0] == 90_000
    assert told[1] == 2**64 - 1
    assert told[2] == ANY_RATE - 1
