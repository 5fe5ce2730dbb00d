"""Answers that were written and not read: how many bytes each client is owed, and since when it took none.

A client takes a byte when the kernel's acknowledgement of it comes back: on a thin link the kernel has megabytes on
their way, and asks for more only when a good part has arrived, so that the transport's own buffer may stand still
for minutes.

Contains: counting what is owed. Does not contain: what is done about it (server).
"""

from __future__ import annotations

import fcntl
import struct
import termios
from collections.abc import Callable

from edge_broker.network.connection.connection import Connection
from edge_broker.network.connection.memory_budget import ALLOWANCE_BYTES

UNREAD_S_MAX = 60.0


class _UnreadBytes:
    """One client's unread responses: `counted` in the pool; it had `taken` so much in all `since` then."""

    __slots__ = ("counted", "since", "taken")

    def __init__(self, since: float) -> None:
        self.counted = 0
        self.taken = -1
        self.since = since


class Unread:
    """All clients that are owed more than their allowance; `stuck` hears of those that take nothing."""

    def __init__(self, now: Callable[[], float], stuck: Callable[[Connection, float], None]) -> None:
        self._now = now
        self._stuck = stuck
        self._unread: dict[Connection, _UnreadBytes] = {}

    def __bool__(self) -> bool:
        """Whether anybody is owed anything."""
        return bool(self._unread)

    def unread_changed(self, connection: Connection, unread_bytes: int) -> None:
        """So much of what was written to this client has not left the process."""
        owed = self._unread.get(connection)
        if owed is None:
            owed = self._unread[connection] = _UnreadBytes(self._now())
        _count(connection, owed, unread_bytes)

    def forget(self, connection: Connection) -> None:
        """The connection is gone, and what it held with it."""
        self._unread.pop(connection, None)

    def check_clients(self) -> None:
        """See who took what meanwhile."""
        now = self._now()
        for connection, owed in list(self._unread.items()):
            transport = connection.transport
            if transport is None or connection.closing:
                continue
            unread_bytes = transport.get_write_buffer_size()
            _count(connection, owed, unread_bytes)
            if unread_bytes <= ALLOWANCE_BYTES:
                _count(connection, owed, 0)
                del self._unread[connection]
                continue
            taken = connection.bytes_written - unread_bytes - _in_kernel(connection)
            if taken > owed.taken:
                owed.taken, owed.since = taken, now
            elif now - owed.since >= UNREAD_S_MAX:
                self._stuck(connection, now - owed.since)


def _count(connection: Connection, unread: _UnreadBytes, unread_bytes: int) -> None:
    if unread_bytes > unread.counted:
        connection.answers.take(unread_bytes - unread.counted)
    else:
        connection.answers.give(unread.counted - unread_bytes)
    unread.counted = unread_bytes


def _in_kernel(connection: Connection) -> int:
    """Bytes that the kernel has sent or holds, and that were not acknowledged."""
    assert connection.transport is not None
    sock = connection.transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0:
        return 0
    found: int = struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, b"\0\0\0\0"))[0]
    return found
