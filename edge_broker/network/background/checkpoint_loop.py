"""Writes the recovery checkpoint periodically, and at once after a clock step; logs a fault that lasts once.

| a write | its log line |
|---|---|
| fails, and the one before did not, or by another error | `job_failed` |
| fails by the same error again | counted; `lines_summed` has the count once an hour |
| succeeds, or the broker stops | `lines_summed`, if a line was left out |

Contains: when it is written, those lines. Does not contain: the checkpoint (storage/log_store.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from edge_broker.broker.broker import Broker
from edge_broker.broker.outcomes import Outcome, Reply, RunInWorker
from edge_broker.errors import Refusal, StorageFault
from edge_broker.network.log_lines import log_line

SUM_S = 3600.0
FAILED_EVENT = "job_failed"


class Jobs(Protocol):
    """Starts work that no client waits for, as the dispatcher."""

    def start(self, step: Callable[[], Outcome]) -> None:
        """Start it."""


class CheckpointLoop:
    """The checkpoint of one broker; owned by the loop."""

    def __init__(self, broker: Broker, jobs: Jobs, seconds: Callable[[], float]) -> None:
        self._broker = broker
        self._jobs = jobs
        self._seconds = seconds
        self._error = ""  # of the last write; empty: it succeeded
        self._left_out, self._since_s = 0, 0.0

    async def run(self, period_s: float) -> None:
        """Write it every `period_s` until the task is cancelled."""
        try:
            while True:
                await asyncio.sleep(period_s)
                self._jobs.start(self.write)
        finally:
            self._sum_up()

    def write(self) -> Outcome:
        """Write it once, in the worker `files`."""
        return RunInWorker(self._checkpoint, self._log_result, lambda _: Reply(None), background=True)

    def look_at_clock(self) -> Outcome:
        """See whether a time service has set the clock in the meantime, and say so when that has changed.

        A clock that steps is kept at once: the next boot must know of it, or it takes the step for time without power.
        """
        broker, store = self._broker, self._broker.store
        before, age = (store.directory.age.known_boot_id, broker.time.now().trusted), store.directory.age
        store.directory.advance_age(broker.clock.refresh())
        now = broker.time.now()
        if (store.directory.age.known_boot_id, now.trusted) != before:
            log_line("info", "clock_trust_changed", trusted=now.trusted, age_ms=now.age_ms, boot_id=now.boot_id)
        if not store.directory.age.differs_in_doubt(age):
            return Reply(None)
        level, stepped_ms = "warning" if store.directory.age.is_doubted else "info", store.directory.age.stepped_ms
        log_line(level, "clock_stepped", stepped_ms=stepped_ms, reason=broker.time.note())
        return self.write()

    def _checkpoint(self) -> str:
        """Return why it could not be written; empty when it is."""
        try:
            self._broker.store.checkpoint()
        except (StorageFault, Refusal) as error:
            return str(error)
        return ""

    def _log_result(self, error: str) -> Outcome:
        if error != self._error:
            self._sum_up()
            self._error = error
            if error:
                log_line("error", FAILED_EVENT, error=error)
        elif error:
            self._left_out += 1
            if self._seconds() - self._since_s >= SUM_S:
                self._sum_up()
        return Reply(None)

    def _sum_up(self) -> None:
        """Log how many lines were left out, and count from zero."""
        now_s = self._seconds()
        if self._left_out:
            seconds = f"{now_s - self._since_s:.1f}"
            log_line("error", "lines_summed", of=FAILED_EVENT, left_out=self._left_out, seconds=seconds)
        self._left_out, self._since_s = 0, now_s
