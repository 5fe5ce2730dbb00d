"""What connections have carried, the open ones and those that have ended, by the kernel's own count."""

from __future__ import annotations

import socket
from contextlib import suppress

from kafka_wire.connection.byte_counters import Traffic
from kafka_wire.connection.tcp_connect import read_window_use, read_wire_bytes
from tests.support.waiting import Deadline


class Carrier:
    def __init__(self, out, back):
        self.bytes = out, back

    def wire_bytes(self):
        return self.bytes


def test_what_has_ended_counts_on_and_what_never_began_not_at_all():
    traffic, one, other, stranger = Traffic(), Carrier(10, 20), Carrier(1, 2), Carrier(5, 5)
    traffic.begins(one)
    traffic.begins(other)
    assert traffic.total() == (11, 22)
    one.bytes = 15, 25
    traffic.ends(one)
    one.bytes = 0, 0
    traffic.ends(one)
    traffic.ends(stranger)
    other.bytes = 3, 3
    assert traffic.total() == (18, 28)


def test_the_kernel_counts_payload_and_headers_until_it_is_closed():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as near:
        far, _ = server.accept()
        with far:
            near.sendall(bytes(5000))
            left = 5000
            while left:
                left -= len(far.recv(left))
            out, back = read_wire_bytes(near) or (0, 0)
            assert 5000 < out < 20_000
            assert 0 < back < 5000
            assert (read_wire_bytes(far) or (0, 0))[1] > 5000
    assert read_wire_bytes(near) is None


def test_the_kernel_tells_for_how_long_a_window_was_shut():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as near:
        far, _ = server.accept()
        with far:
            near.setblocking(False)
            deadline = Deadline(10)
            while (told := read_window_use(near)) is None or not told.limited_s:
                deadline.check("a peer that reads nothing", told)
                with suppress(BlockingIOError):
                    near.send(bytes(65_536))
            assert told.busy_s >= told.limited_s > 0
            assert 0 < told.shortest_s <= 1
            assert 0 < told.round_trip_s <= 1
    assert read_window_use(near) is None
