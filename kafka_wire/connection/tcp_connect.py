"""Open a TCP connection over a bad link, set its kernel options, and read the kernel's counts of its bytes.

While a connect hangs, another begins each NEXT_S, as the kernel repeats a lost packet ever more rarely; the first that
is answered wins. Of ATTEMPTS_MAX the youngest makes room for the next one. The others stay open for ATTEMPT_S: over a
link whose queue is full, an answer may take that long. NEXT_S is no whole second, so that new attempts do not coincide
with the kernel's repetitions, a second later and ever more rarely (RFC 6298).
If a packet was sent three times, the kernel begins with a single segment instead of ten (RFC 5681, 3.1), which costs
round trips. Such a connection is kept as a spare while a younger attempt may still be answered.
Both families of addresses are tried, in the order of the system's resolver (RFC 6724).

| option | why |
|---|---|
| TCP_NODELAY | requests are written whole |
| TCP_USER_TIMEOUT | a link that acknowledges nothing for so long is dead (RFC 5482), or its peer reads nothing |
| SO_KEEPALIVE, TCP_KEEPIDLE, TCP_KEEPINTVL | the same while only a response is awaited |
| TCP_NOTSENT_LOWAT | unsent data waits in the process, where it can be counted |
| TCP_CONGESTION | on a link that loses of itself, loss does not mean a full link: BBR |
| SO_MAX_PACING_RATE | with BBR, little waits on the link: BBR fills it with up to a round trip more than it holds |

Does not contain: TLS, frames, the sentences about errors. Source: tcp(7), Linux's tcp_timer.c.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import socket
import sys
from collections.abc import Sequence
from struct import Struct, pack
from typing import Any, NamedTuple

ATTEMPT_S = 10.0  # an attempt is left open for so long
NEXT_S = 0.8  # longer than the round trip of any satellite
ATTEMPTS_MAX = 3  # at once
THROUGH_LOSS = "bbr"  # the one algorithm of Linux's that goes by rates and round trips, not by losses
ANY_RATE = 0xFFFFFFFF
QUIET_S = 60  # routers remember a connection for minutes at least
Address = tuple[socket.AddressFamily, Any]  # as the system's resolver returns them
# In linux/tcp.h's tcp_info:
_RTT, _TOTAL_RETRANS, _BYTES_RECEIVED, _SEGS_OUT, _SEGS_IN = 68, 100, 128, 136, 140
_MIN_RTT, _BUSY_TIME, _RWND_LIMITED, _BYTES_SENT = 148, 168, 176, 200
_SEGMENTS_BYTES, _WINDOWED_BYTES, _CARRIED_BYTES = 140, 184, 208  # sizes that kernels return since 4.2, 4.10, 4.19
_ALGORITHM_BYTES = 16  # linux/tcp.h: TCP_CA_NAME_MAX
_SO_MAX_PACING_RATE, _TCP_CC_INFO = 47, 26  # asm-generic/socket.h, linux/tcp.h: the socket module has no names for them
_BBR_INFO = Struct("=QII")  # linux/inet_diag.h, the beginning of tcp_bbr_info: rate, shortest round trip, pacing gain
_BBR_INFO_BYTES = 20
_BBR_GAIN_MAX = 5 * 256 // 4  # tcp_bbr.c: above this gain, in 256ths of the rate, it searches for the rate
_HEADER_BYTES = 52  # of a segment: IPv4's, TCP's and its timestamps
_SIOCOUTQ, _SIOCOUTQNSD = 0x5411, 0x894B  # linux/sockios.h: bytes not acknowledged, bytes not sent


class Tuning(NamedTuple):
    """The bytes that the kernel may hold unsent, and the silent seconds after which a link is dead."""

    unsent_bytes_max: int
    silent_s_max: float

    def apply(self, connection: socket.socket) -> None:
        """Set the options, before the connect."""
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, int(self.silent_s_max / 10)))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        set_unsent_max(connection, self.unsent_bytes_max)
        self.watch(connection)

    def watch(self, connection: socket.socket) -> None:
        """Detect a dead link in time: the kernel probes after half of the silence, so that several may be lost."""
        set_silence(connection, self.silent_s_max)
        _set(connection, socket.TCP_KEEPIDLE, max(1, int(self.silent_s_max / 2)))

    def set_idle(self, connection: socket.socket) -> None:
        """Set the options of an idle connection: no request waits, and a probe a minute keeps its entry in routers."""
        set_silence(connection, QUIET_S + self.silent_s_max)
        _set(connection, socket.TCP_KEEPIDLE, QUIET_S)


class WindowUse(NamedTuple):
    """The seconds that a connection had data to send, those of them limited by the peer's window, and its round trips.

    The round trips, now and the shortest, are in seconds.
    """

    busy_s: float
    limited_s: float
    round_trip_s: float
    shortest_s: float


class LinkFill(NamedTuple):
    """BBR's estimates of a link: bytes per second, seconds that packets wait, the shortest round trip in seconds.

    `begins`: BBR still searches for the rate, as it does at its start.
    """

    bytes_s: int
    waits_s: float
    shortest_s: float
    begins: bool


def set_silence(connection: socket.socket, seconds: float) -> None:
    """Make the kernel close a link that acknowledges nothing for so long, or a peer that reads nothing."""
    _set(connection, socket.TCP_USER_TIMEOUT, int(seconds * 1000))


def set_unsent_max(connection: socket.socket, size: int) -> None:
    """Let the kernel accept no more while it holds so many bytes unsent. A closed socket is skipped, here and below."""
    _set(connection, socket.TCP_NOTSENT_LOWAT, size)


def _set(connection: socket.socket, option: int, value: int) -> None:
    if connection.fileno() >= 0:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def congestion_control(connection: socket.socket) -> str:
    """Return the kernel's congestion control algorithm; empty if the socket is closed."""
    if connection.fileno() < 0:
        return ""
    told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _ALGORITHM_BYTES)
    return told.partition(b"\0")[0].decode()


def set_congestion_control(connection: socket.socket, name: str) -> bool:
    """Set the congestion control algorithm; return False if the kernel has none of that name, or does not permit it.

    Without CAP_NET_ADMIN only those in net.ipv4.tcp_allowed_congestion_control are permitted.
    """
    if connection.fileno() < 0:
        return False
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EPERM):
            raise
        return False
    return True


def read_link_fill(connection: socket.socket) -> LinkFill | None:
    """Return BBR's estimates; None if the socket is closed, has another algorithm, or BBR has none yet."""
    told = _tcp_info(connection, _SEGMENTS_BYTES)
    if told is None or congestion_control(connection) != THROUGH_LOSS:
        return None
    own = connection.getsockopt(socket.IPPROTO_TCP, _TCP_CC_INFO, _BBR_INFO_BYTES)
    if len(own) < _BBR_INFO_BYTES:
        return None
    bytes_s, shortest_us, gain = _BBR_INFO.unpack_from(own)
    waits_s = max(0, _number(told, _RTT, 4) - shortest_us) / 1e6
    return LinkFill(bytes_s, waits_s, shortest_us / 1e6, gain > _BBR_GAIN_MAX) if bytes_s else None


def set_rate_max(connection: socket.socket, bytes_s: int | None) -> None:
    """Bound the kernel's sending rate; None: no bound."""
    if connection.fileno() >= 0:
        told = ANY_RATE if bytes_s is None else min(bytes_s, ANY_RATE - 1)
        connection.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, pack("=I", told))


def unsent_bytes(connection: socket.socket) -> int:
    """Return bytes that the kernel holds and has not sent."""
    return _queued_bytes(connection, _SIOCOUTQNSD)


def unacked_bytes(connection: socket.socket) -> int:
    """Return bytes that the kernel holds: not sent, or sent and not acknowledged."""
    return _queued_bytes(connection, _SIOCOUTQ)


def segments(connection: socket.socket) -> tuple[int, int]:
    """Return how many segments were sent, and how many of those again; 0 and 0 if the socket is closed."""
    told = _tcp_info(connection, _SEGMENTS_BYTES)
    return (0, 0) if told is None else (_number(told, _SEGS_OUT, 4), _number(told, _TOTAL_RETRANS, 4))


def begins_slowly(connection: socket.socket) -> bool:
    """Return whether the kernel begins with one segment: the connect was sent more than twice (tcp_init_transfer)."""
    return segments(connection)[1] > 1


def read_window_use(connection: socket.socket) -> WindowUse | None:
    """Return how its time was spent; None if it is closed, or the kernel has no such counts."""
    told = _tcp_info(connection, _WINDOWED_BYTES)
    if told is None:
        return None
    busy, limited = _number(told, _BUSY_TIME, 8), _number(told, _RWND_LIMITED, 8)
    return WindowUse(busy / 1e6, limited / 1e6, _number(told, _RTT, 4) / 1e6, _number(told, _MIN_RTT, 4) / 1e6)


def read_wire_bytes(connection: socket.socket) -> tuple[int, int] | None:
    """Return approximate bytes sent and received on the wire, including TLS, headers and retransmissions.

    None if it is closed, or the kernel has no such counts.
    """
    told = _tcp_info(connection, _CARRIED_BYTES)
    if told is None:
        return None
    out, back = _number(told, _BYTES_SENT, 8), _number(told, _BYTES_RECEIVED, 8)
    return out + _HEADER_BYTES * _number(told, _SEGS_OUT, 4), back + _HEADER_BYTES * _number(told, _SEGS_IN, 4)


def _tcp_info(connection: socket.socket, size: int) -> bytes | None:
    if connection.fileno() < 0:
        return None
    told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, size)
    return told if len(told) == size else None


def _number(told: bytes, at: int, size: int) -> int:
    return int.from_bytes(told[at : at + size], sys.byteorder)


def _queued_bytes(connection: socket.socket, which: int) -> int:
    if connection.fileno() < 0:
        return 0
    return int.from_bytes(fcntl.ioctl(connection.fileno(), which, bytes(4)), sys.byteorder)


async def dial(host: str, port: int, tuning: Tuning, hurried: asyncio.Event | None = None) -> socket.socket:
    """Return a connected socket; raises OSError if every address refuses. The caller bounds the time.

    Whenever `hurried` is set, it is cleared and another attempt begins at once.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return await first_of([(family, address) for family, _, _, _, address in found], tuning, hurried)


async def first_of(addresses: Sequence[Address], tuning: Tuning, hurried: asyncio.Event | None = None) -> socket.socket:
    """Return the first connection that one of the addresses answers; each is tried in turn until it refuses."""
    return await _Dialling(addresses, tuning, hurried or asyncio.Event()).first()


class _Dialling:
    """The attempts at the addresses of one host, in turn."""

    def __init__(self, addresses: Sequence[Address], tuning: Tuning, hurried: asyncio.Event) -> None:
        self._hurried = hurried
        self._addresses = list(dict.fromkeys(addresses))
        self._tuning = tuning
        self._under_way: dict[asyncio.Task[socket.socket], Address] = {}
        self._begin_at = 0.0
        self._spare: socket.socket | None = None
        self._spare_until = 0.0
        self._error: BaseException = OSError("there is no address")

    async def first(self) -> socket.socket:
        """Return the first connection that does not begin slowly, or the spare."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                now = loop.time()
                if self._addresses and now >= self._begin_at:
                    self._begin(now)
                is_last = not self._under_way and not self._addresses
                if self._spare is not None and (is_last or now >= self._spare_until):
                    spare, self._spare = self._spare, None
                    return spare
                if is_last:
                    raise self._error
                connection = await self._wait(self._idle_s(now))
                if connection is not None and not begins_slowly(connection):
                    return connection
                if connection is not None:
                    self._keep(connection, loop.time())
        finally:
            for task in self._under_way:
                task.cancel()
                task.add_done_callback(_close_late)
            if self._spare is not None:
                self._spare.close()

    def _idle_s(self, now: float) -> float | None:
        """Return for how many seconds to wait unless an attempt ends; None: for ever."""
        times = [self._begin_at] if self._addresses else []
        times += [self._spare_until] if self._spare is not None else []
        return max(0.0, min(times) - now) if times else None

    def _keep(self, connection: socket.socket, now: float) -> None:
        """Keep a connection that begins slowly, and start another attempt, which may be answered a round trip later."""
        if self._spare is None:
            self._spare, self._spare_until, self._begin_at = connection, now + NEXT_S, 0.0
        else:
            connection.close()

    def _begin(self, now: float) -> None:
        if len(self._under_way) == ATTEMPTS_MAX:
            youngest = list(self._under_way)[-1]
            del self._under_way[youngest]
            youngest.cancel()
            youngest.add_done_callback(_close_late)
        address = self._addresses.pop(0)
        self._addresses.append(address)
        self._under_way[asyncio.ensure_future(self._attempt(address))] = address
        self._begin_at = now + NEXT_S

    async def _attempt(self, address: Address) -> socket.socket:
        connection = socket.socket(address[0], socket.SOCK_STREAM)
        try:
            connection.setblocking(False)
            self._tuning.apply(connection)
            async with asyncio.timeout(ATTEMPT_S):
                await asyncio.get_running_loop().sock_connect(connection, address[1])
        except BaseException:
            connection.close()
            raise
        return connection

    async def _wait(self, wait_s: float | None) -> socket.socket | None:
        hurry = asyncio.ensure_future(self._hurried.wait())
        try:
            waits: set[asyncio.Future[Any]] = {*self._under_way, hurry}
            done, _ = await asyncio.wait(waits, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurry.cancel()
        if self._hurried.is_set():
            self._hurried.clear()
            self._begin_at = 0.0
        for task in [task for task in self._under_way if task in done]:
            address = self._under_way[task]
            error = task.exception()
            if error is None:
                del self._under_way[task]
                return task.result()
            del self._under_way[task]
            self._error = error
            if not isinstance(error, TimeoutError) and address in self._addresses:
                self._addresses.remove(address)  # it refused: only silent addresses are tried again
                self._begin_at = 0.0
        return None


def _close_late(task: asyncio.Task[socket.socket]) -> None:
    """Close a connection that was made too late."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()
