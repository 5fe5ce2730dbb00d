"""What the gateway counts, and the HTTP port that shows it: GET /metrics for Prometheus, GET /health for a person.

The HTTP server reads one bounded request and answers it; anything else about HTTP stays out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from gateway.errors import ConfigurationError

_REQUEST_BYTES_MAX = 8_192
_REQUEST_TIMEOUT_S = 5.0


class Metrics:
    """The gateway's metrics, in a registry of their own."""

    def __init__(self) -> None:
        untyped: Any = disable_created_metrics
        untyped()  # a series per counter that nobody reads
        self.registry = CollectorRegistry()
        self.records = self._counter("records", "Records acknowledged by the Kafka broker.", "source", "topic")
        self.ledger_records = self._counter("ledger_records", "Losses written to the ledger.", "cause")
        self.accepted = self._counter("accepted", "Messages that a route's topic holds.", "route", "time_unit")
        self.dead_letters = self._counter("dead_letters", "Messages in the dead-letter topic.", "route", "reason")
        self.producer_restarts = self._counter("producer_restarts", "Times a fresh producer took over what waited.")
        self.mqtt_redelivered = self._counter("mqtt_redelivered", "MQTT messages that mosquitto sent again.")
        self.mqtt_connections = self._counter("mqtt_connections", "Connections made to mosquitto.")
        self.pending_records = self._gauge("pending_records", "Records taken in and not yet acknowledged.")
        self.pending_bytes = self._gauge("pending_bytes", "Memory held by records not yet acknowledged.")
        self.mqtt_connected = self._gauge("mqtt_connected", "1 while subscribed at mosquitto.")
        self.file_unread_bytes = self._gauge("file_unread_bytes", "Bytes of the followed file not yet read.", "path")
        self.ack_seconds = Histogram(
            "edge_gateway_ack_seconds",
            "From taking a record in to the broker's acknowledgement.",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
            registry=self.registry,
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"edge_gateway_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"edge_gateway_{name}", text, labels, registry=self.registry)


class MetricsServer:
    """Serves /metrics and /health; `problem` says in one line what is wrong, or None."""

    def __init__(self, metrics: Metrics, problem: Callable[[], str | None]) -> None:
        self._metrics = metrics
        self._problem = problem
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> None:
        """Listen; raises ConfigurationError when the address cannot be had."""
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=_REQUEST_BYTES_MAX)
        except OSError as error:
            raise ConfigurationError(
                f"metrics {host}:{port} cannot be listened on ({error.strerror}): free it, or choose another."
            ) from error

    async def stop(self) -> None:
        """Stop listening; answers under way are finished by the loop's end."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # a visitor who hangs up, dawdles or sends no HTTP gets no answer, and that is all that happens
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(request.split(b"\r\n", 1)[0].split()))
                await writer.drain()
        writer.close()

    def _answer(self, words: list[bytes]) -> bytes:
        path = words[1].split(b"?")[0] if len(words) == 3 and words[0] == b"GET" else b""
        if path == b"/metrics":
            return _response("200 OK", CONTENT_TYPE_LATEST, generate_latest(self._metrics.registry))
        if path == b"/health":
            problem = self._problem()
            status = "200 OK" if problem is None else "503 Service Unavailable"
            return _response(status, "text/plain; charset=utf-8", f"{problem or 'ok'}\n".encode())
        return _response("404 Not Found", "text/plain; charset=utf-8", b"GET /metrics or /health\n")


def _response(status: str, content_type: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
