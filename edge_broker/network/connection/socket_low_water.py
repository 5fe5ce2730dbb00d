"""How much must have come before the kernel wakes the loop for a socket: SO_RCVLOWAT.

A request of 64 KB comes over a network as some 45 packets. Without this most of them wake the loop, though nothing can
be done before the last, and the request costs several times what it costs where it comes at once.

| a request | the socket wakes the loop |
|---|---|
| none is begun, or less than WAIT_BYTES_MIN of it lacks | for a byte |
| is begun | once what lacks is there, WAIT_BYTES_MAX at most |
| is begun, and came slowly, or memory is short | for a byte |

WAIT_BYTES_MAX is half of the window that the kernel first gives a client: so the client can go on sending while the
loop is on its way. With all of the window a link of 100 ms and 20 Mbit/s carries half as much.

Contains: the mark of a socket. Does not contain: how much lacks (connection.py), and what of it TLS holds
(pending_ciphertext.py). Source: socket(7); the kernel's tcp_set_rcvlowat, and tcp_data_ready, which wakes for less,
too, once the window is used up or the client has left.
"""

from __future__ import annotations

import asyncio
import socket

WAIT_BYTES_MIN = 4096  # for less than three packets the system calls cost more than they save
WAIT_BYTES_MAX = 32_768


def mark_for(lacks_bytes: int) -> int:
    """For how many bytes to be woken when so many lack; 0 or less: none do."""
    return 1 if lacks_bytes < WAIT_BYTES_MIN else min(lacks_bytes, WAIT_BYTES_MAX)


def set_mark(transport: asyncio.Transport, nbytes: int) -> None:
    """Have the loop woken for so many bytes; nothing where there is no socket of the kernel's."""
    sock: socket.socket | None = transport.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, nbytes)
