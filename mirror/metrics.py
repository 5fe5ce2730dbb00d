"""What can be watched: the Prometheus metrics, the health in one line, and the HTTP port that serves both.

No decision of the mirror may come in here. `GET /metrics` is Prometheus text; `GET /health` is 200 `ok`, or 503 with
one line that says what is wrong. Requests are bounded to 8 KiB and 5 s.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import cast

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from mirror.ledger import CAUSES

REQUEST_BYTES_MAX = 8 * 1024
REQUEST_S_MAX = 5.0


class Metrics:
    """The mirror's metrics, in a registry of their own; `topic` is the topic's name at the source."""

    def __init__(self) -> None:
        cast(Callable[[], None], disable_created_metrics)()  # a line per metric that nobody asks for
        self.registry = CollectorRegistry()
        partition = ("topic", "partition")
        self.records = self._counter("records", "Records acknowledged by the target", partition)
        self.bytes = self._counter("bytes", "Keys and values acknowledged by the target", partition)
        self.duplicates = self._counter(
            "duplicate_records", "Records that are now at the target more than once, at most"
        )
        self.target_lost = self._counter("target_lost_records", "Acknowledged records that the target no longer has")
        self.ledger = self._counter("ledger_records", "Records written to the loss ledger", ("cause",))
        for cause in CAUSES:
            self.ledger.labels(cause)
        self.restarts = self._counter("restarts", "Clients made anew after a failure", ("side",))
        self.lag = self._gauge("lag_records", "Source end minus what is safe at the target", partition)
        self.under_way = self._gauge("under_way_bytes", "Bytes sent and not yet acknowledged")
        self.buffered = self._gauge("buffered_bytes", "Bytes read and not yet acknowledged")

    def _counter(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
        return Counter(f"edge_mirror_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
        return Gauge(f"edge_mirror_{name}", text, labels, registry=self.registry)


async def serve(host: str, port: int, registry: CollectorRegistry, trouble: Callable[[], str]) -> asyncio.Server:
    """Serve /metrics and /health until the server is closed; `trouble` returns what is wrong, or empty text."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(REQUEST_S_MAX):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_response(head, registry, trouble))
                await writer.drain()
        writer.close()

    return await asyncio.start_server(answer, host, port, limit=REQUEST_BYTES_MAX)


def _response(head: bytes, registry: CollectorRegistry, trouble: Callable[[], str]) -> bytes:
    words = head.split(b"\r\n", 1)[0].split()
    path = words[1].split(b"?", 1)[0] if len(words) == 3 and words[0] == b"GET" else b""
    if path == b"/metrics":
        return _http("200 OK", CONTENT_TYPE_LATEST, generate_latest(registry))
    if path == b"/health":
        wrong = trouble()
        return _http("503 Service Unavailable" if wrong else "200 OK", "text/plain", f"{wrong or 'ok'}\n".encode())
    return _http("404 Not Found", "text/plain", b"Here are GET /metrics and GET /health.\n")


def _http(status: str, content_type: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
