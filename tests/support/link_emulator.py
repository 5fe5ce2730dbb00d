"""A bad link in user space, for kernels without netem: joins two interfaces frame by frame, as a program of its own.

    python link_emulator.py IF_A IF_B DELAY_MS LOSS RATE_BPS QUEUE_BYTES

Each direction has its own queue: a frame waits until those before it are sent at RATE_BPS (0: at once), then travels
for DELAY_MS. One that finds more than QUEUE_BYTES waiting is dropped, and of all others LOSS (0 to 1), by a seed that
is always the same. SIGUSR1 cuts the link, SIGUSR2 mends it: nobody is told, as when a radio is out of reach.

Lives here: that link, with nothing but the standard library, since it is run as a file. Must never come in: addresses,
protocols. Checksums and segments that a card would make must be turned off at both ends: linked_hosts.py does.
"""

from __future__ import annotations

import heapq
import itertools
import random
import select
import signal
import socket
import sys
import time

READY = "link ready"
ETH_P_ALL, SOL_PACKET, PACKET_IGNORE_OUTGOING = 3, 263, 23
FRAME_BYTES_MAX = 65536
FRAMES_IN_A_TURN = 64
RECEIVE_BUFFER_BYTES = 8 << 20
IDLE_S = 1.0


class Direction:
    """What travels one way."""

    def __init__(self, delay_s: float, loss: float, rate_bps: float, queue_bytes: float, chance: random.Random) -> None:
        """Bits per second, 0 for any; bytes that may wait."""
        self._delay_s, self._loss, self._rate_bps, self._queue_bytes = delay_s, loss, rate_bps, queue_bytes
        self._chance = chance
        self._free_at = 0.0

    def arrival(self, size: int, now: float) -> float | None:
        """When a frame that comes in now goes out at the other end; None: it is lost."""
        if self._chance.random() < self._loss:
            return None
        begin = max(now, self._free_at)
        if self._rate_bps:
            if (begin - now) * self._rate_bps / 8 > self._queue_bytes:
                return None
            self._free_at = begin = begin + size * 8 / self._rate_bps
        return begin + self._delay_s


def opened(name: str) -> socket.socket:
    """A socket with every frame that comes out of an interface; what is sent goes into it."""
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    sock.bind((name, 0))
    sock.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    sock.setblocking(False)
    return sock


class Emulator:
    """Both directions, and the switch."""

    def __init__(self, ends: tuple[socket.socket, socket.socket], directions: tuple[Direction, Direction]) -> None:
        """The first direction is that of what comes in at the first end."""
        self._to = {ends[0]: (directions[0], ends[1]), ends[1]: (directions[1], ends[0])}
        self._under_way: list[tuple[float, int, socket.socket, bytes]] = []
        self._order = itertools.count()
        self._is_cut = False

    def cut(self, *_: object) -> None:
        """Let nothing through any more; what is under way is lost."""
        self._is_cut = True
        self._under_way.clear()

    def mend(self, *_: object) -> None:
        """Let all through again."""
        self._is_cut = False

    def run(self) -> None:
        """Carry frames for ever."""
        while True:
            wait_s = max(0.0, self._under_way[0][0] - time.monotonic()) if self._under_way else IDLE_S
            for end in select.select(list(self._to), [], [], wait_s)[0]:
                self._take(end)
            self._give(time.monotonic())

    def _take(self, end: socket.socket) -> None:
        direction, other = self._to[end]
        for _ in range(FRAMES_IN_A_TURN):
            try:
                frame = end.recv(FRAME_BYTES_MAX)
            except BlockingIOError:
                return
            at = None if self._is_cut else direction.arrival(len(frame), time.monotonic())
            if at is not None:
                heapq.heappush(self._under_way, (at, next(self._order), other, frame))

    def _give(self, now: float) -> None:
        while self._under_way and self._under_way[0][0] <= now:
            _, _, end, frame = heapq.heappop(self._under_way)
            try:
                end.send(frame)
            except BlockingIOError:  # the interface takes no more: a frame is lost, as on any link
                continue


def main() -> None:
    """Join two interfaces until a signal ends it."""
    first, second = opened(sys.argv[1]), opened(sys.argv[2])
    delay_ms, loss, rate_bps, queue_bytes = map(float, sys.argv[3:7])
    directions = [Direction(delay_ms / 1e3, loss, rate_bps, queue_bytes, random.Random(seed)) for seed in (1, 2)]
    emulator = Emulator((first, second), (directions[0], directions[1]))
    signal.signal(signal.SIGUSR1, emulator.cut)
    signal.signal(signal.SIGUSR2, emulator.mend)
    print(READY, flush=True)
    emulator.run()


if __name__ == "__main__":
    main()
