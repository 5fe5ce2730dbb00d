"""Serve `GET /metrics` (Prometheus text), `GET /health` and, if a part has it, `GET /status` (JSON) on their own port.

A whole HTTP server or the Prometheus client would cost more memory than the rest of a broker's code. This one reads a
bounded request, answers, and closes. With a token it answers only requests with it, as `Authorization: Bearer`.
Does not contain: the metrics, the rule for health.
Source: RFC 9112, RFC 6750; Prometheus text exposition format 0.0.4.
"""

from __future__ import annotations

import asyncio
import hmac
import re
from collections.abc import Callable
from typing import NamedTuple

from drupelet.printable import printable

REQUEST_BYTES_MAX = 4096
REQUEST_S_MAX = 5.0
CONNECTIONS_MAX = 32  # each holds a descriptor, which the part needs for its own work
PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"
PLAIN_TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
_BEARER = re.compile(rb"\r\nauthorization:[ \t]*bearer +([^\r]*?)[ \t]*\r\n", re.IGNORECASE)


class Pages(NamedTuple):
    """The pages: `metrics` of content type `metrics_type`, and /health.

    `problem` returns a problem in one line, with status 503; None or empty: the page is that of `well`.
    A character of either that is not printable is served as its escape, so that a name makes no second line.
    """

    metrics: Callable[[], bytes]
    problem: Callable[[], str | None]
    well: Callable[[], str] = lambda: "ok"
    metrics_type: str = PROMETHEUS_TEXT
    token: bytes = b""
    """A request without it gets no page; empty: every request gets all."""
    status: Callable[[], bytes] | None = None
    """The JSON text of /status; None: there is no such page."""


async def serve_http(host: str, port: int, pages: Pages) -> asyncio.Server:
    """Listen until the server is closed; OSError if the address is not available.

    A client that sends more than 4 KB, closes early, or takes longer than 5 s gets no answer; nor does the oldest
    connection if more than `CONNECTIONS_MAX` are open.
    """
    open_connections: dict[asyncio.StreamWriter, None] = {}

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(open_connections) >= CONNECTIONS_MAX:
            oldest = next(iter(open_connections))
            del open_connections[oldest]
            oldest.transport.abort()
        open_connections[writer] = None
        try:
            async with asyncio.timeout(REQUEST_S_MAX):
                writer.write(respond(await reader.readuntil(b"\r\n\r\n"), pages))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.transport.abort()
        finally:
            open_connections.pop(writer, None)
            writer.close()

    return await asyncio.start_server(handle, host, port, limit=REQUEST_BYTES_MAX)


def respond(head: bytes, pages: Pages) -> bytes:
    """Return the whole response to a request head."""
    words = head.split(b"\r\n", 1)[0].split(b" ")
    if len(words) != 3 or words[0] not in (b"GET", b"HEAD"):
        return _response("405 Method Not Allowed", PLAIN_TEXT, b"only GET is served\n")
    if pages.token and not _shows(head, pages.token):
        challenge = "401 Unauthorized\r\nWWW-Authenticate: Bearer"
        response = _response(challenge, PLAIN_TEXT, b"show the token, as Authorization: Bearer TOKEN\n")
    else:
        response = _page(words[1].split(b"?", 1)[0], pages)
    return response.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if words[0] == b"HEAD" else response


def _shows(head: bytes, token: bytes) -> bool:
    shown = _BEARER.search(head)
    return shown is not None and hmac.compare_digest(shown[1], token)


def _page(path: bytes, pages: Pages) -> bytes:
    if path == b"/metrics":
        return _response("200 OK", pages.metrics_type, pages.metrics())
    if path == b"/status" and pages.status is not None:
        return _response("200 OK", JSON, pages.status())
    if path != b"/health":
        return _response("404 Not Found", PLAIN_TEXT, b"try /metrics or /health\n")
    problem = pages.problem()
    status = "503 Service Unavailable" if problem else "200 OK"
    return _response(status, PLAIN_TEXT, f"{printable(problem or pages.well())}\n".encode())


def _response(status: str, content_type: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
