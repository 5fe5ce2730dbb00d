"""Serves the mirror's state: Prometheus metrics, the health in one line, the report, at one HTTP port.

Does not contain: decisions of the mirror, HTTP itself (drupelet/observe/http.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from drupelet.addresses import host_and_port
from drupelet.observe.http import Pages, serve_http
from mirror.ledger.losses import CAUSES
from mirror.status.report import Report

OUTCOMES = "committed", "broke_off", "timed_out"  # of transactions


class Metrics:
    """The mirror's metrics, in a registry of their own; `topic` is the topic's name at the source."""

    def __init__(self) -> None:
        cast(Callable[[], None], disable_created_metrics)()  # a line per metric without use
        self.registry = CollectorRegistry()
        partition = ("topic", "partition")
        self.records = self._counter("records", "Records acknowledged by the target", partition)
        self.bytes = self._counter("bytes", "Records acknowledged by the target, before compression", partition)
        self.sent = self._counter("sent_bytes", "Bytes of the batches acknowledged by the target, as they were sent")
        self.passed_over = self._counter(
            "passed_over_records", "Records that were not sent, as they came from the target", partition
        )
        self.duplicates = self._counter(
            "duplicate_records", "Records that are now at the target more than once, at most"
        )
        self.target_lost = self._counter("target_lost_records", "Acknowledged records that the target no longer has")
        self.ledger = self._counter("ledger_records", "Records written to the loss ledger", ("cause",))
        for cause in CAUSES:
            self.ledger.labels(cause)
        self.transactions = self._counter("transactions", "Transactions that ended so", ("outcome",))
        for outcome in OUTCOMES:
            self.transactions.labels(outcome)
        self.restarts = self._counter("restarts", "Clients started again after a failure", ("side",))
        self.lag = self._gauge("lag_records", "Source end minus what is safe at the target", partition)
        self.stalled = self._gauge("stalled_partitions", "Partitions with records that stand still for too long")
        self.fenced = self._gauge("fenced", "1 where the target refuses what an older mirror still sends, else 0")
        self.under_way = self._gauge("under_way_bytes", "Bytes sent and not yet acknowledged")
        self.buffered = self._gauge("buffered_bytes", "Bytes read and not yet acknowledged")
        self.held = self._gauge("held_bytes", "Those of partitions that the target refuses or cannot take now")

    def _counter(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
        return Counter(f"edge_mirror_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
        return Gauge(f"edge_mirror_{name}", text, labels, registry=self.registry)


class Tells(Protocol):
    """The running mirror, as it reports its state."""

    def trouble(self) -> str:
        """Return what is wrong, or empty text."""

    def report(self) -> Report:
        """Return the state."""


def pages_of(metrics: Metrics, tells: Tells, well: Callable[[], str], token: bytes) -> Pages:
    """Return the pages, for clients with `token` if there is one; `well` returns the text of a healthy /health."""
    return Pages(
        lambda: generate_latest(metrics.registry),
        tells.trouble,
        well,
        CONTENT_TYPE_LATEST,
        token,
        lambda: tells.report().as_json().encode(),
    )


async def serve(address: str, pages: Pages) -> asyncio.Server:
    """Serve /metrics, /health and /status at HOST:PORT until the server is closed."""
    return await serve_http(*host_and_port(address), pages)
