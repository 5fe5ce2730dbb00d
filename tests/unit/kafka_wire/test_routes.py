"""What of rtnetlink's messages is news, by their bytes as a little-endian kernel sends them (linux/rtnetlink.h)."""

from __future__ import annotations

import asyncio
import socket
from struct import pack

import pytest

from kafka_wire.connection import route_watch
from kafka_wire.connection.route_watch import Changes, RouteWatch, messages
from tests.support.waiting import CALL_S

LINK_DOWN, LINK_UP, LINK_UP_BUSY = 0x1003, 0x11043, 0x11143
CAPTURED_NEW_ADDRESS = bytes.fromhex(
    "48000000"  # 72 bytes
    "1400"  # RTM_NEWADDR
    "0000" "00000000" "00000000"  # flags, sequence, pid: the kernel tells it by itself
    "02" "18" "80" "00" "05000000"  # IPv4, /24, permanent, universe, interface 5
    "0800" "0100" "c0000201"  # IFA_ADDRESS 192.0.2.1
    "0800" "0200" "c0000201"  # IFA_LOCAL
    "0700" "0300" "643000" "00"  # IFA_LABEL d0, padded
    "1400" "0600" "ffffffff" "ffffffff" "11110000" "11110000"  # IFA_CACHEINFO
)  # fmt: skip


def message(kind, body):
    size = 16 + len(body)
    return pack("<IHHII", size, kind, 0, 0, 0) + body + bytes(-size % 4)


def link(index, flags, kind=16):
    return message(kind, pack("<BxHiII", 0, 1, index, flags, 0xFFFFFFFF))


def address(index, text, kind=20):
    packed = socket.inet_aton(text)
    return message(kind, pack("<BBBBI", 2, 24, 0, 0, index) + pack("<HH", 8, 2) + packed)


def route(table=254, flags=0, kind=24):
    return message(kind, pack("<BBBBBBBBI", 2, 24, 0, 0, table, 2, 253, 1, flags))


def test_a_link_is_news_where_it_or_its_carrier_went_up_or_down():
    changes = Changes()
    assert changes.is_news(link(5, LINK_UP))
    assert not changes.is_news(link(5, LINK_UP_BUSY)), "counters, wireless events and the like"
    assert changes.is_news(link(5, LINK_DOWN))
    assert changes.is_news(link(6, LINK_DOWN))
    assert not changes.is_news(link(5, LINK_DOWN) + link(6, LINK_DOWN))
    assert changes.is_news(link(5, LINK_DOWN) + link(6, LINK_UP))
    assert changes.is_news(link(5, LINK_DOWN, kind=17))


def test_an_address_is_news_once_until_it_is_gone():
    changes = Changes()
    assert changes.is_news(address(5, "192.0.2.1"))
    assert not changes.is_news(address(5, "192.0.2.1"))
    assert changes.is_news(address(6, "192.0.2.1"))
    assert changes.is_news(address(5, "192.0.2.1", kind=21))
    assert changes.is_news(address(5, "192.0.2.1"))


def test_a_routers_word_of_an_address_that_is_known_is_none():
    changes = Changes()
    data = bytearray(CAPTURED_NEW_ADDRESS)
    data[:4] = len(data).to_bytes(4, "little")
    assert changes.is_news(bytes(data))
    assert not changes.is_news(bytes(data))
    assert changes._addresses == {(5, socket.inet_aton("192.0.2.1"))}


def test_routes_are_news_but_for_the_kernels_own():
    changes = Changes()
    assert changes.is_news(route())
    assert changes.is_news(route(kind=25))
    assert not changes.is_news(route(table=255))
    assert not changes.is_news(route(flags=0x200))


@pytest.mark.parametrize("cut", range(0, 60, 7))
def test_what_cannot_be_read_is_no_news_and_no_error(cut):
    data = route() + link(5, LINK_UP)
    list(messages(data[:cut]))
    Changes().is_news(data[:cut])
    Changes().is_news(bytes(cut))
    Changes().is_news(pack("<IHHII", 16, 20, 0, 0, 0) + bytes(cut))
    Changes().is_news(message(20, pack("<BBBBI", 2, 24, 0, 0, 1) + bytes(cut)))


async def test_news_that_come_together_are_told_once_and_only_the_kernel_is_heard(monkeypatch):
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    class Heard:
        """A netlink socket whose kernel is the test."""

        pid = 0

        def __getattr__(self, name):
            return getattr(near, name)

        def recvfrom(self, size):
            return near.recv(size), (self.pid, 0)

    heard = Heard()
    monkeypatch.setattr(route_watch, "_listening", lambda: heard)
    told = asyncio.Queue()
    with far, RouteWatch(lambda: told.put_nowait(None)):
        heard.pid = 77
        far.send(route())
        await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        heard.pid = 0
        for _ in range(5):
            far.send(route())
        await asyncio.wait_for(told.get(), CALL_S)
        far.send(link(5, LINK_UP))
        await asyncio.wait_for(told.get(), CALL_S)
        assert told.empty()
