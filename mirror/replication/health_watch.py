"""Watches the mirror each second: lags, stalls, problems, figures, and sides without a response.

| name of the problem | reported if |
|---|---|
| source group | the group's coordinator refuses this mirror |
| source fetch | no fetch had a response for SILENT_S longer than a fetch waits |
| target ack | the oldest request to the target had no response for SILENT_S |

Does not contain: which partitions stand still (status/lag_watch.py), the form of reports (status/running_report.py).
"""

from __future__ import annotations

import asyncio
import time

from mirror.client.clients import Clients
from mirror.client.fetcher import WAIT_ALL_S
from mirror.config import Config
from mirror.partition.stream import PartitionStream
from mirror.replication.active_period import ActivePeriod
from mirror.status import running_report
from mirror.status.lag_watch import Lags, WatchedParts
from mirror.status.report import Report

SILENT_S = 5.0  # without a response, after which a side counts as away
WATCH_S = 1.0


class HealthWatch:
    """Watches one mirror; `run` and `ask_ends` are tasks, `report` may be called at any time."""

    def __init__(self, config: Config, clients: Clients, watched: WatchedParts, period: ActivePeriod) -> None:
        self._config, self._clients, self._watched, self._period = config, clients, watched, period
        self._lags = Lags(watched, config.stall_timeout_ms / 1000, config.buffer_bytes_max)
        self._started_at = time.monotonic()

    async def run(self) -> None:
        """Watch until this is cancelled."""
        while True:
            await asyncio.sleep(WATCH_S)
            self.check(time.monotonic())

    async def ask_ends(self) -> None:
        """Query the ends of partitions without a fetch, until this is cancelled."""
        await self._lags.ask(self._clients.source)

    def forget(self, stream: PartitionStream) -> None:
        """Watch a partition no more."""
        self._lags.forget(stream)

    def check(self, now: float) -> None:
        """Report problems that began or ended, and set the metrics; `now` in seconds of the monotonic clock."""
        watched, period = self._watched, self._period
        self._report_problem("source group", self._clients.standby.trouble)
        self._lags.tick(now)
        watched.troubles.tick(now)
        if not period.is_active:
            return
        metrics = watched.metrics
        metrics.held.set(period.sender.refusals.held.bytes)
        metrics.fenced.set(not period.sessions.is_unfenced)
        metrics.under_way.set(watched.link.under_way_bytes)
        metrics.buffered.set(watched.memory.bytes)
        period.sender.tick()
        self._report_silence("source fetch", "no answer", self._clients.source.reader.silent_s - WAIT_ALL_S)
        self._report_silence("target ack", "none", period.silent_s)

    def _report_silence(self, name: str, what: str, seconds: float) -> None:
        self._report_problem(name, f"{what} for {seconds:.0f} s" if seconds > SILENT_S else "")

    def _report_problem(self, name: str, text: str) -> None:
        self._watched.troubles.note(name, text, time.monotonic())

    def report(self) -> Report:
        """Return the state of both sides, the link and all partitions."""
        watched = self._watched
        running = running_report.Running(
            config=self._config,
            streams=watched.streams.values(),
            progress=watched.progress,
            link=watched.link,
            ends=(self._clients.source, self._clients.target),
            troubles=watched.troubles,
            silent_s=self._period.silent_s,
            buffered_bytes=watched.memory.bytes,
            started_at=self._started_at,
            now=time.monotonic(),
        )
        return running_report.report(running)
