"""Group commit: one sync round at a time serves everybody who waits; the next begins when it ends.

| state | event | next |
|---|---|---|
| clean | append that nobody waits for | dirty, due within log.flush.interval.ms |
| clean, dirty | somebody waits for the log | wanted: in the round that begins now, or right after the running one |
| wanted | round ends | clean; waiters of the log are told |
| any | a sync fails | the partition goes offline, the sync is never retried |

Lives here: when to sync what. Must never come in: how (storage), who waits (dispatcher).
Source: PostgreSQL's group commit; broker-side figures in README, section Benchmarks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from edge_broker.errors import StorageFault
from edge_broker.network.worker import Worker
from edge_broker.storage.log import PartitionLog, SyncTicket

Round = list[tuple[PartitionLog, SyncTicket]]


class Syncer:
    """Decides when a log is synced; `moved(log)` is called on the loop whenever its high watermark may have risen or
    it failed.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        worker: Worker,
        interval_min_ms: int,
        moved: Callable[[PartitionLog], None],
    ) -> None:
        self._loop = loop
        self._worker = worker
        self._interval_min_s = interval_min_ms / 1000
        self._moved = moved
        self._wanted: dict[PartitionLog, None] = {}
        self._due: dict[PartitionLog, asyncio.TimerHandle] = {}
        self._busy = False
        self._next_start = 0.0
        self._pause: asyncio.TimerHandle | None = None
        self.rounds = 0
        self.seconds = 0.0

    @property
    def busy(self) -> bool:
        """True while a round runs or is about to."""
        return self._busy

    def sync_soon(self, log: PartitionLog) -> None:
        """Sync `log` in the round that begins now, or in the next one."""
        timer = self._due.pop(log, None)
        if timer is not None:
            timer.cancel()
        self._wanted[log] = None
        if not self._busy:
            self._begin()

    def sync_later(self, log: PartitionLog) -> None:
        """Sync `log` within its flush.ms, unless it is left to the kernel."""
        if not log.settings.left_to_kernel and log not in self._wanted and log not in self._due:
            self._due[log] = self._loop.call_later(min(log.settings.flush_ms, 86_400_000) / 1000, self._overdue, log)

    def forget(self, log: PartitionLog) -> None:
        """Drop a log that was deleted."""
        self._wanted.pop(log, None)
        timer = self._due.pop(log, None)
        if timer is not None:
            timer.cancel()

    def hurry(self) -> None:
        """Begin every round at once from now on, the one that waits for the interval too: the broker stops."""
        self._interval_min_s = 0.0
        if self._pause is not None:
            self._pause.cancel()
            self._start_round()

    def _overdue(self, log: PartitionLog) -> None:
        self._due.pop(log, None)
        self.sync_soon(log)

    def _begin(self) -> None:
        self._busy = True
        delay_s = self._next_start - self._loop.time()
        if self._interval_min_s and delay_s > 0:
            self._pause = self._loop.call_later(delay_s, self._start_round)
        else:
            self._loop.call_soon(self._start_round)  # behind the requests that this turn of the loop still brings

    def _start_round(self) -> None:
        self._pause = None
        self._next_start = self._loop.time() + self._interval_min_s
        round_: Round = []
        for log in self._wanted:
            ticket = log.begin_sync()
            if ticket is not None:
                round_.append((log, ticket))
        self._wanted.clear()
        if round_:
            self._worker.submit(lambda: run_round(round_), lambda result, error: self._end_round(round_, result, error))
        else:
            self._busy = False

    def _end_round(
        self, round_: Round, result: tuple[float, list[StorageFault | None]] | None, error: Exception | None
    ) -> None:
        if error is not None or result is None:
            raise AssertionError("a sync round lets no exception out") from error
        self._busy = False
        self.rounds += 1
        self.seconds += result[0]
        for (log, ticket), fault in zip(round_, result[1], strict=True):
            if fault is None:
                log.finish_sync(ticket)
            else:
                log.fail(fault)
        for log, _ in round_:
            self._moved(log)
        if self._wanted and not self._busy:
            self._begin()


def run_round(round_: Round) -> tuple[float, list[StorageFault | None]]:
    """Sync every ticket and say how long all took in seconds and what each came to; one failure costs no other log.
    [worker]
    """
    faults: list[StorageFault | None] = []
    begin = time.perf_counter()
    for log, ticket in round_:
        try:
            ticket.run()
        except StorageFault as fault:
            faults.append(fault)
        except Exception as error:  # noqa: BLE001 - a bug: what it left unsynced is unknown, and the others go on
            faults.append(StorageFault(log.directory, ticket.end.position, f"the sync failed: {error!r}"))
        else:
            faults.append(None)
    return time.perf_counter() - begin, faults
