"""Report changes of this host's links, addresses and routes: rtnetlink's messages, and a socket for them.

A caller that waits to retry over a restored link can retry at once. No privilege is needed.

| message | is news |
|---|---|
| RTM_NEWLINK | if the link or its carrier went up or down; the kernel reports other changes, too |
| RTM_NEWADDR | of a new address: routers confirm the others every few minutes |
| RTM_DELLINK, RTM_DELADDR | always |
| RTM_NEWROUTE, RTM_DELROUTE | except the kernel's own: copies, and its table of local addresses |

Contains: the rule for news. Does not contain: the reaction to it. Source: rtnetlink(7), linux/rtnetlink.h.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Self

GROUPS = 0x1 | 0x10 | 0x40 | 0x100 | 0x400  # links, addresses and routes of IPv4, the same of IPv6
MESSAGE_BYTES_MAX = 65_536
READS_MAX = 64  # at a time
SOON_S = 0.2  # changes within it are reported once

_NETLINK_ROUTE = 0
_NEW_LINK, _DEL_LINK, _NEW_ADDRESS, _DEL_ADDRESS, _NEW_ROUTE, _DEL_ROUTE = 16, 17, 20, 21, 24, 25
_UP = 0x1 | 0x40 | 0x10000  # IFF_UP, IFF_RUNNING, IFF_LOWER_UP: the carrier is there
_CLONED = 0x200  # RTM_F_CLONED
_LOCAL_TABLE = 255
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_HEADER = Struct("=IHHII")
_LINK = Struct("=BxHiII")  # ifinfomsg
_ADDRESS = Struct("=BBBBI")  # ifaddrmsg
_ROUTE = Struct("=BBBBBBBBI")  # rtmsg
_ATTRIBUTE = Struct("=HH")


class Changes:
    """PURE: distinguishes news from known state."""

    def __init__(self) -> None:
        self._links: dict[int, int] = {}
        self._addresses: set[tuple[int, bytes]] = set()

    def is_news(self, data: bytes) -> bool:
        """Add the messages of one read; return whether any is news. A malformed message is none."""
        judged = [self._is_change(kind, body) for kind, body in messages(data)]  # all: each is remembered
        return any(judged)

    def _is_change(self, kind: int, body: bytes) -> bool:
        if kind in (_NEW_LINK, _DEL_LINK) and len(body) >= _LINK.size:
            _, _, index, flags, _ = _LINK.unpack_from(body)
            now = flags & _UP if kind == _NEW_LINK else -1
            before, self._links[index] = self._links.get(index), now
            return before != now
        if kind in (_NEW_ADDRESS, _DEL_ADDRESS) and len(body) >= _ADDRESS.size:
            known = (_ADDRESS.unpack_from(body)[4], _address(body[_ADDRESS.size :]))
            was_there = known in self._addresses
            (self._addresses.add if kind == _NEW_ADDRESS else self._addresses.discard)(known)
            return kind == _DEL_ADDRESS or not was_there
        if kind in (_NEW_ROUTE, _DEL_ROUTE) and len(body) >= _ROUTE.size:
            _, _, _, _, table, _, _, _, flags = _ROUTE.unpack_from(body)
            return table != _LOCAL_TABLE and not flags & _CLONED
        return False


def messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Return each message's type and body, up to a truncated one."""
    at = 0
    while at + _HEADER.size <= len(data):
        size, kind, _, _, _ = _HEADER.unpack_from(data, at)
        if not _HEADER.size <= size <= len(data) - at:
            return
        yield kind, data[at + _HEADER.size : at + size]
        at += size + 3 & ~3


def _address(attributes: bytes) -> bytes:
    """Return the address of an RTM_NEWADDR: the local one, or the peer's if it has no other."""
    found: dict[int, bytes] = {}
    at = 0
    while at + _ATTRIBUTE.size <= len(attributes):
        size, kind = _ATTRIBUTE.unpack_from(attributes, at)
        if size < _ATTRIBUTE.size:
            break
        found[kind] = attributes[at + _ATTRIBUTE.size : at + size]
        at += size + 3 & ~3
    return found.get(_IFA_LOCAL, found.get(_IFA_ADDRESS, b""))


def _listening() -> socket.socket:
    kinds = socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    made = socket.socket(socket.AF_NETLINK, kinds, _NETLINK_ROUTE)
    try:
        made.bind((0, GROUPS))
    except OSError:
        made.close()
        raise
    return made


class RouteWatch:
    """Calls `changed` soon after links, addresses or routes have changed; OSError if the kernel reports none."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._changes = Changes()
        self._soon: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._socket = _listening()
        self._loop.add_reader(self._socket.fileno(), self._read)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket."""
        if self._soon is not None:
            self._soon.cancel()
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()

    def _read(self) -> None:
        for _ in range(READS_MAX):
            try:
                data, sender = self._socket.recvfrom(MESSAGE_BYTES_MAX)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self._tell_soon()  # the socket's buffer overflowed: something has changed
                continue
            if sender[0] == 0 and self._changes.is_news(data):  # from the kernel itself
                self._tell_soon()

    def _tell_soon(self) -> None:
        if self._soon is None:
            self._soon = self._loop.call_later(SOON_S, self._report_change)

    def _report_change(self) -> None:
        self._soon = None
        self._changed()
