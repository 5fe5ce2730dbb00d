"""A bad link in user space, for kernels without netem: carries frames between two taps, late, slowly or not at all.

usage: link.py NEAR FAR DELAY_MS LOSS_PERCENT RATE_KBIT CONTROL     (each direction; rate 0: no bound, loss 100: cut)
Frames of the address CONTROL, and ARP, pass untouched: it is the site's link that is bad, not the way of the tests.
Source: Documentation/networking/tuntap.rst, for what is read and written; taps leave no checksum to be filled in.
"""

from __future__ import annotations

import fcntl
import heapq
import itertools
import os
import random
import select
import socket
import struct
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
ARP = b"\x08\x06"
QUEUE_S = 0.5  # what waits for a slow link; more is dropped, as a router does


@dataclass
class Direction:
    """One way over the link: when it is free again, and what is under way, by the time at which it arrives."""

    to: int
    free_at: float = 0.0
    under_way: list[tuple[float, int, bytes]] = field(default_factory=list)


def tap(name: str) -> int:
    """Open a tap device that is there already."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return descriptor


def arrival(frame: bytes, way: Direction, now: float, arguments: list[str]) -> float | None:
    """Return when a frame arrives, None if never."""
    delay_ms, loss_percent, rate_kbit = map(float, arguments[:3])
    if frame[12:14] == ARP or socket.inet_aton(arguments[3]) in (frame[26:30], frame[30:34]):
        return now
    if random.random() * 100 < loss_percent or way.free_at > now + QUEUE_S:  # noqa: S311 - weather, no secret
        return None
    way.free_at = max(now, way.free_at) + (len(frame) / rate_kbit / 125 if rate_kbit else 0)
    return way.free_at + delay_ms / 1000


def deliver(way: Direction, now: float) -> None:
    """Hand over what has arrived."""
    while way.under_way and way.under_way[0][0] <= now:
        frame = heapq.heappop(way.under_way)[2]
        with suppress(OSError):  # the device is down or full: the frame is lost, as on a wire
            os.write(way.to, frame)


def carry(near: int, far: int, arguments: list[str]) -> None:
    """Carry frames both ways, for ever."""
    ways, order = {near: Direction(far), far: Direction(near)}, itertools.count()
    while True:
        due = [way.under_way[0][0] for way in ways.values() if way.under_way]
        wait_s = max(0.0, min(due) - time.monotonic()) if due else None
        for descriptor in select.select(list(ways), [], [], wait_s)[0]:
            with suppress(BlockingIOError):  # select may promise a frame that is not there
                frame, way = os.read(descriptor, 65536), ways[descriptor]
                at = arrival(frame, way, time.monotonic(), arguments)
                if at is not None:
                    heapq.heappush(way.under_way, (at, next(order), frame))
        for way in ways.values():
            deliver(way, time.monotonic())


if __name__ == "__main__":
    carry(tap(sys.argv[1]), tap(sys.argv[2]), sys.argv[3:])
