"""Group commit: one sync round at a time serves everybody who waits; the next begins when it ends.

| state | event | next |
|---|---|---|
| clean | append that nobody waits for | dirty, due within log.flush.interval.ms |
| clean, dirty | somebody waits for it, durability sync | wanted: in the round that begins now, or in the next |
| wanted | round ends | clean; waiters of the log are told |
| any | a sync fails | the partition goes offline, the sync is never retried |

Lives here: when to sync what. Must never come in: how (storage/rounds.py), who waits (dispatcher).
Source: PostgreSQL's group commit; broker-side figures in README, section Benchmarks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from edge_broker.errors import StorageFault
from edge_broker.network.worker import Worker
from edge_broker.storage.log import PartitionLog
from edge_broker.storage.pace import Pace
from edge_broker.storage.rounds import Rounds, SyncTicket, Way

Round = list[tuple[PartitionLog, SyncTicket]]
Outcome = tuple[float, list[StorageFault | None]]


class Syncer:
    """Decides when a log is synced; `moved(log)` is called on the loop whenever its high watermark may have risen or
    it failed.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        worker: Worker,
        how: Rounds,
        interval_min_ms: int,
        moved: Callable[[PartitionLog], None],
        pace: Pace,
    ) -> None:
        self._loop = loop
        self._worker = worker
        self._how = how
        self._interval_min_s = interval_min_ms / 1000
        self._moved = moved
        self._pace = pace
        self._wanted: dict[PartitionLog, None] = {}
        self._due: dict[PartitionLog, asyncio.TimerHandle] = {}
        self._busy = False
        self._next_start = 0.0
        self._pause: asyncio.TimerHandle | None = None
        self.rounds = 0
        self.whole_rounds = 0
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

    def sync_awaited(self, log: PartitionLog) -> None:
        """Sync `log` for somebody who waits: at once, unless its topic leaves that to the clock."""
        if log.settings.sync_awaited:
            self.sync_soon(log)
        else:
            self.sync_later(log)

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
            self._pace.syncing_bytes = sum(log.unsynced_bytes for log, _ in round_)
            way = self._how.way(len(round_))
            self._worker.submit(
                lambda: self._run(round_, way), lambda result, error: self._end_round(round_, way, result, error)
            )
        else:
            self._busy = False

    def _run(self, round_: Round, way: Way) -> Outcome:
        begin = time.perf_counter()
        faults = self._how.run([ticket for _, ticket in round_], way)
        return time.perf_counter() - begin, faults

    def _end_round(self, round_: Round, way: Way, result: Outcome | None, error: Exception | None) -> None:
        if error is not None or result is None:
            raise AssertionError("a sync round lets no exception out") from error
        self._busy = False
        self.rounds += 1
        self.whole_rounds += way == "all"
        self.seconds += result[0]
        self._how.took(way, len(round_), result[0])
        for (log, ticket), fault in zip(round_, result[1], strict=True):
            if fault is None:
                log.finish_sync(ticket)
            else:
                log.fail(fault)
        self._pace.unsynced_bytes = sum(log.unsynced_bytes for log in (*self._wanted, *self._due))
        self._pace.syncing_bytes = 0
        for log, _ in round_:
            self._moved(log)
        if self._wanted and not self._busy:
            self._begin()
