"""Brings partitions back that a failed sync or write took offline, again and again while the disk refuses.

| a partition | next try |
|---|---|
| goes offline | at once, after everything that workers still do to it |
| could not be brought back, or failed again before its next sync | after 1 s, 2 s, 4 s, … 60 s |
| was never opened (recovery set it offline), or its topic is deleted | none |
| is a replica, whose epoch elections alone raise: others lead | as its member wants it (partition.py) |

Contains: when. Does not contain: how (storage/replica/resume_failed_log.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from edge_broker.broker.broker import Broker
from edge_broker.broker.outcomes import Outcome, Reply, RunInWorker, WorkerName
from edge_broker.network.log_lines import log_line
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.replica.resume_failed_log import BroughtOnline, bring_online

PAUSE_S = 1.0
PAUSE_S_MAX = 60.0


class OfflinePartitions:
    """Tries until it works; `start` runs work of the broker's own, `lost` and `back` hear of partitions."""

    def __init__(
        self,
        broker: Broker,
        loop: asyncio.AbstractEventLoop,
        start: Callable[[Callable[[], Outcome]], None],
        lost: Callable[[PartitionLog], None],
        back: Callable[[PartitionLog], None],
    ) -> None:
        self._broker = broker
        self._loop = loop
        self._start = start
        self._lost = lost
        self._back = back
        self.tries: dict[PartitionLog, int] = {}
        self.count = 0

    def begin(self, log: PartitionLog) -> None:
        """Bring an offline partition back, now or after the pause that its last tries have earned."""
        if not log.may_come_online or self._broker.store.directory.is_replicated(log.topic):
            return
        tries = self.tries.get(log, 0)
        self.tries[log] = tries + 1
        if tries:
            self._loop.call_later(min(PAUSE_S * 2.0 ** (tries - 1), PAUSE_S_MAX), self._try, log)
        else:
            self._loop.call_soon(self._try, log)

    def log_synced(self, log: PartitionLog) -> None:
        """The disk has confirmed something of `log` again."""
        self.tries.pop(log, None)

    def _try(self, log: PartitionLog) -> None:
        if not self._broker.store.holds(log):
            self.tries.pop(log, None)
            return
        work = RunInWorker(
            lambda: bring_online(self._broker.store, log, self._broker.time.now()),
            lambda found: self._online(log, found),
            lambda _: self._reopening_failed(log),
        )
        self._start(lambda: after_worker("disk", after_worker("writer", work)))

    def _online(self, log: PartitionLog, found: BroughtOnline | None) -> Outcome:
        if found is None or not self._broker.store.holds(log):
            self.tries.pop(log, None)
            return Reply(None)
        fault, lost_offset = log.fault, log.log_end_offset
        log.go_on_as(found.log)
        self.count += 1
        for note in found.notes:
            log_line("warning", "reopening_noted", note=note)
        log_line(
            "warning",
            "partition_online",
            topic=log.topic,
            partition=log.partition,
            leader_epoch=log.leader_epoch,
            log_end_offset=log.log_end_offset,
            lost=lost_offset - log.log_end_offset,
            fault=fault,
        )
        self._back(log)
        loss = found.loss
        if loss is None:
            return Reply(None)
        return RunInWorker(
            lambda: self._broker.store.ledger.write([loss]), lambda _: Reply(None), lambda _: Reply(None)
        )

    def _reopening_failed(self, log: PartitionLog) -> Outcome:
        for topic in self._broker.store.topics.values():  # perhaps it was the ledger, in a worker's hands
            for other in topic.partitions:
                if other.fault is not None:
                    self._lost(other)
        self.begin(log)
        return Reply(None)


def after_worker(worker: WorkerName, work: RunInWorker) -> RunInWorker:
    """The same work, once `worker` is done with all it has been given until now."""
    return RunInWorker(lambda: None, lambda _: work, lambda _: work, worker=worker)
