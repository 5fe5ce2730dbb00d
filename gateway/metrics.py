"""The gateway's metrics, and the HTTP port that serves them: GET /metrics for Prometheus, GET /health for a person.

Does not contain: HTTP itself (drupelet/observe/http.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from drupelet.errors import ConfigurationError, reason
from drupelet.observe.http import Pages, serve_http


class Metrics:
    """The gateway's metrics, in a registry of their own."""

    def __init__(self) -> None:
        untyped: Any = disable_created_metrics
        untyped()  # a series per counter without a reader
        self.registry = CollectorRegistry()
        self.records = self._counter("records", "Records acknowledged by the Kafka broker.", "source", "topic")
        self.ledger_records = self._counter("ledger_records", "Losses written to the ledger.", "cause")
        self.accepted = self._counter("accepted", "Messages that a route's topic holds.", "route", "time_unit")
        self.times_unread = self._counter("times_unread", "Readings whose time field holds no time.", "route")
        self.dead_letters = self._counter("dead_letters", "Messages in the dead-letter topic.", "route", "reason")
        self.producer_restarts = self._counter("producer_restarts", "Times a fresh producer took over what waited.")
        self.mqtt_redelivered = self._counter("mqtt_redelivered", "MQTT messages that mosquitto sent again.")
        self.mqtt_oversize = self._counter("mqtt_oversize", "Packets too large for mosquitto, which closed on them.")
        self.mqtt_connections = self._counter("mqtt_connections", "Connections made to mosquitto.")
        self.pending_records = self._gauge("pending_records", "Records taken in and not yet acknowledged.")
        self.pending_bytes = self._gauge("pending_bytes", "Memory held by records not yet acknowledged.")
        self.mqtt_connected = self._gauge("mqtt_connected", "1 while subscribed at mosquitto.")
        self.file_unread_bytes = self._gauge("file_unread_bytes", "Bytes of the followed file not yet read.", "path")
        self.file_nul_bytes = self._counter("file_nul_bytes", "NULs skipped that no program wrote.", "path")
        self.watch_state = self._gauge("watch_state", "1 for the present state of a watch.", "watch", "state")
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


def pages_of(metrics: Metrics, problem: Callable[[], str | None], well: Callable[[], str], token: bytes) -> Pages:
    """Return the pages: `problem` returns the problem in one line, or None; a reader has to send `token`."""
    return Pages(lambda: generate_latest(metrics.registry), problem, well, CONTENT_TYPE_LATEST, token)


async def serve_metrics(host: str, port: int, pages: Pages) -> asyncio.Server:
    """Serve /metrics and /health until the server is closed; raise ConfigurationError if it cannot listen."""
    try:
        return await serve_http(host, port, pages)
    except OSError as error:
        raise ConfigurationError(
            f"metrics {host}:{port} cannot be listened on ({reason(error)}): free it, or choose another."
        ) from error
