"""An HTTP proxy from inside a network namespace to the outside, for hosts of the lab, which have no way out.

  proxy.py NAMESPACE ADDRESS PORT       serves until it is ended; prints `ready` when it listens

It listens in the namespace and connects outside of it, to ports 80 and 443 alone. Needs root.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import socket
import sys
from urllib.parse import urlsplit

CLONE_NEWNET = 0x40000000
PORTS = (80, 443)


def listen(namespace: str, address: str, port: int) -> socket.socket:
    """Make a listening socket inside the namespace; it stays there when this process is outside again."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/self/ns/net") as outside, open(f"/run/netns/{namespace}") as inside:
        enter(libc, inside.fileno())
        try:
            return socket.create_server((address, port), backlog=64)
        finally:
            enter(libc, outside.fileno())


def enter(libc: ctypes.CDLL, descriptor: int) -> None:
    """Move this thread into a network namespace."""
    if libc.setns(descriptor, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry one connection: a tunnel for CONNECT, one request for anything else."""
    with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        head = await reader.readuntil(b"\r\n\r\n")
        request, _, headers = head.partition(b"\r\n")
        method, target, version = request.decode("latin-1").split(" ")
        url = urlsplit(f"//{target}" if method == "CONNECT" else target)
        port = url.port or 80
        if port in PORTS and url.hostname:
            there, out = await asyncio.open_connection(url.hostname, port)
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                path = f"{url.path or '/'}{'?' + url.query if url.query else ''}"
                out.write(
                    f"{method} {path} {version}\r\nConnection: close\r\n".encode("latin-1")
                    + without_connection(headers)
                )
            await asyncio.gather(carry(reader, out), carry(there, writer))
    writer.close()


def without_connection(headers: bytes) -> bytes:
    """The headers without those that are for the proxy."""
    lines = headers.split(b"\r\n")
    return b"\r\n".join(line for line in lines if not line.lower().startswith((b"connection:", b"proxy-connection:")))


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Bytes one way until their end."""
    with contextlib.suppress(OSError):
        while chunk := await reader.read(1 << 16):
            writer.write(chunk)
            await writer.drain()
    with contextlib.suppress(OSError, RuntimeError):
        writer.write_eof()


async def main(namespace: str, address: str, port: str) -> None:
    """Serve until ended."""
    server = await asyncio.start_server(serve, sock=listen(namespace, address, int(port)))
    print("ready", flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
