"""`GET /metrics` (Prometheus text) and `GET /health`, nothing else, on a port of their own.

A whole HTTP server or the Prometheus client would cost more memory than the rest of the broker's code. This one reads
at most 4 KB of a request, answers, and closes.

Lives here: HTTP. Must never come in: what the figures are (metrics.py). Source: RFC 9112; Prometheus text exposition
format 0.0.4.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

REQUEST_BYTES_MAX = 4096
REQUEST_S_MAX = 5.0


async def serve_http(
    host: str,
    port: int,
    metrics: Callable[[], str],
    health: Callable[[], str | None],
    well: Callable[[], str] = lambda: "ok",
) -> asyncio.Server:
    """Start the server; `health` returns None when all is well, else one line that says what is wrong (answered with
    503). `well` is what is said when it is.
    """

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), REQUEST_S_MAX)
            writer.write(respond(head, metrics, health, well))
            await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            writer.transport.abort()
        finally:
            writer.close()

    return await asyncio.start_server(handle, host, port, limit=REQUEST_BYTES_MAX)


def respond(
    head: bytes, metrics: Callable[[], str], health: Callable[[], str | None], well: Callable[[], str] = lambda: "ok"
) -> bytes:
    """The whole response to a request head."""
    parts = head.split(b"\r\n", 1)[0].split(b" ")
    if len(parts) != 3 or parts[0] not in (b"GET", b"HEAD"):
        return _response("405 Method Not Allowed", "only GET is served\n", parts[0])
    path = parts[1].split(b"?", 1)[0]
    if path == b"/metrics":
        return _response("200 OK", metrics(), parts[0])
    if path == b"/health":
        wrong = health()
        return (
            _response("200 OK", well() + "\n", parts[0])
            if wrong is None
            else _response("503 Service Unavailable", wrong + "\n", parts[0])
        )
    return _response("404 Not Found", "try /metrics or /health\n", parts[0])


def _response(status: str, text: str, method: bytes) -> bytes:
    body = text.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    ).encode()
    return head if method == b"HEAD" else head + body
