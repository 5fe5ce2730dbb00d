"""Group commit: one sync round at a time serves everybody who waits; the next begins when it ends.

| state | event | next |
|---|---|---|
| clean | append without a waiter | dirty, due within log.flush.interval.ms |
| clean, dirty | a client waits for it, durability sync | wanted: in the round that begins now, or in the next |
| wanted | round ends | clean; the log's waiters are notified |
| any | an answer needs the mark of a log (dirty_markers.py) | it is written in this round or the next |
| any | a sync fails | the partition goes offline, the sync is never retried |

Contains: when to sync what. Does not contain: how (storage/log/group_commit.py), who waits (dispatcher).
Source: PostgreSQL's group commit; broker-side figures in README, section Benchmarks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from edge_broker.errors import StorageFault
from edge_broker.network.log_lines import log_line
from edge_broker.network.worker import Worker
from edge_broker.storage.files.write_throttle import WriteThrottle
from edge_broker.storage.log.group_commit import Flush, GroupCommit, Way
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.recovery.dirty_markers import InUse, Marking

Round = list[tuple[PartitionLog, Flush]]
Outcome = tuple[float, float, list[StorageFault | None]]  # seconds of the marks, seconds of the syncs


class Syncer:
    """Decides when a log is synced; `moved(logs)` is called on the loop once per round, with the logs of the round:
    their high watermark may have risen, or they failed.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        worker: Worker,
        how: GroupCommit,
        interval_min_ms: int,
        moved: Callable[[Sequence[PartitionLog]], None],
        throttle: WriteThrottle,
        in_use: InUse,
    ) -> None:
        self._loop = loop
        self._worker = worker
        self._how = how
        self._interval_min_s = interval_min_ms / 1000
        self._moved = moved
        self._throttle = throttle
        self._in_use = in_use
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
        """Sync `log` for a waiting client: at once, unless its topic leaves that to the clock."""
        if log.settings.sync_awaited:
            self.sync_soon(log)
        else:
            self.sync_later(log)

    def sync_later(self, log: PartitionLog) -> None:
        """Sync `log` within its flush.ms, unless it is left to the kernel."""
        if not log.settings.left_to_kernel and log not in self._wanted and log not in self._due:
            self._due[log] = self._loop.call_later(min(log.settings.flush_ms, 86_400_000) / 1000, self._overdue, log)

    def mark(self, log: PartitionLog) -> None:
        """Write a log's mark in the round that begins now, or in the next one; `moved` tells when it is there."""
        self._in_use.ask(log)
        self._begin_if_due()

    def look_at_marks(self) -> None:
        """Take marks off the disk that are not needed any more."""
        self._in_use.remove_idle_marks(self._loop.time())
        self._begin_if_due()

    def forget(self, log: PartitionLog) -> None:
        """Drop a log that was deleted."""
        self._wanted.pop(log, None)
        timer = self._due.pop(log, None)
        if timer is not None:
            timer.cancel()

    def sync_at_once(self) -> None:
        """Begin every round at once from now on, the one that waits for the interval too: the broker stops."""
        self._interval_min_s = 0.0
        if self._pause is not None:
            self._pause.cancel()
            self._start_round()

    def _overdue(self, log: PartitionLog) -> None:
        self._due.pop(log, None)
        self.sync_soon(log)

    def _begin_if_due(self) -> None:
        if (self._wanted or self._in_use.due) and not self._busy:
            self._begin()

    def _begin(self) -> None:
        self._busy = True
        delay_s = self._next_start - self._loop.time()
        if self._interval_min_s and delay_s > 0:
            self._pause = self._loop.call_later(delay_s, self._start_round)
        else:
            self._loop.call_soon(self._start_round)  # after the requests that this turn of the loop still brings

    def _start_round(self) -> None:
        self._pause = None
        self._next_start = self._loop.time() + self._interval_min_s
        round_: Round = []
        for log in self._wanted:
            flush = log.writer.begin_flush()
            if flush is not None:
                round_.append((log, flush))
        self._wanted.clear()
        marking = self._in_use.begin_write()
        if round_ or marking is not None:
            self._throttle.syncing_bytes = sum(log.writer.unsynced_bytes for log, _ in round_)
            way = self._how.way(len(round_))
            self._worker.submit(
                lambda: self._run(round_, way, marking),
                lambda result, error: self._end_round(round_, way, marking, result, error),
            )
        else:
            self._busy = False

    def _run(self, round_: Round, way: Way, marking: Marking | None) -> Outcome:
        begin = time.perf_counter()
        if marking is not None:
            marking.run()
        marked = time.perf_counter()
        faults = self._how.run([flush for _, flush in round_], way)
        return marked - begin, time.perf_counter() - marked, faults

    def _end_round(
        self, round_: Round, way: Way, marking: Marking | None, result: Outcome | None, error: Exception | None
    ) -> None:
        if error is not None or result is None:
            raise AssertionError("a sync round lets no exception out") from error
        self._busy = False
        self.rounds += 1
        self.whole_rounds += way == "all"
        self.seconds += result[0] + result[1]
        self._how.round_completed(way, len(round_), result[1])
        for (log, flush), fault in zip(round_, result[2], strict=True):
            if fault is None:
                log.writer.finish_flush(flush)
            else:
                log.fail(fault)
        self._throttle.unsynced_bytes = sum(log.writer.unsynced_bytes for log in (*self._wanted, *self._due))
        self._throttle.syncing_bytes = 0
        marked = self._end_marking(marking)
        self._moved(list(dict.fromkeys([*(log for log, _ in round_), *marked])))
        self._begin_if_due()

    def _end_marking(self, marking: Marking | None) -> list[PartitionLog]:
        """The logs whose mark is on the disk now; where it is not, their records have to be, before an answer."""
        if marking is None:
            return []
        self._in_use.end_write(marking)
        if marking.fault is None:
            return marking.logs
        log_line(
            "error", "dirty_markers_not_written", fault=marking.fault, text="answers wait for the sync of their records"
        )
        for log in marking.logs:
            self.sync_awaited(log)
        return []
