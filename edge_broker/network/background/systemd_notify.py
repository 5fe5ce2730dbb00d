"""Report to systemd: ready, stopping, the state in one line, and keep-alives.

| the broker | what systemd hears |
|---|---|
| recovers, however long | STATUS; the unit bounds no start: a killed recovery would only start again |
| serves | READY=1, then WATCHDOG=1 at half of WatchdogSec, sent by the event loop: one that stands still sends none |
| waits for a sync or a write for up to STUCK_S | WATCHDOG=1 and a STATUS that says so |
| waits longer | STATUS alone: systemd kills it with SIGABRT and starts it again |
| cannot come back into its cluster: the client of ZooKeeper has ended, and no other begins | STATUS alone |
| was told to end | STOPPING=1 |

A card that hangs is no reason for a new process: that would meet the same card, read its logs from it once more, and
take every client's connection with it, and a thread in an uninterruptible wait cannot be killed anyway. Cards do hang
for seconds (their own housekeeping), and the kernel ends every such wait with success or EIO within a few minutes
(resets and retries; its own alarm rings at 120 s). Only what lasts longer can be a fault of ours.

Contains: when the broker may say WATCHDOG=1. Does not contain: the datagrams (systemd.py), what the state
is (app).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from drupelet.host.systemd import Notifier
from edge_broker.network.log_lines import log_line
from edge_broker.network.worker import Worker

STUCK_S = 300.0


class JobWatch:
    """How long a worker has been seen at the job it has in hand."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._job: int | None = None
        self._since = 0.0

    def busy_s(self, now: float) -> float:
        """Seconds since the job in progress was first seen; 0 when there is none. To be asked again and again."""
        job = self._worker.job
        if job is None or job != self._job:
            self._job, self._since = job, now
        return now - self._since


async def keep_alive(
    notifier: Notifier,
    workers: Iterable[Worker],
    status: Callable[[], str],
    stuck_s: float = STUCK_S,
    broken: Callable[[], str] = lambda: "",
) -> None:
    """Send WATCHDOG=1 and the status while the loop turns and none of `workers` is stuck; return if none asks.

    `broken` gives the reason why only a new process helps, or an empty string.

    They are those that answers wait for; a worker whose jobs last as long as there is data is not among them.
    """
    loop, watches = asyncio.get_running_loop(), [JobWatch(worker) for worker in workers]

    def beat() -> Sequence[str]:
        busy_s = max(watch.busy_s(loop.time()) for watch in watches)
        text = f"STATUS={status()}" + (f"; the disk has been busy for {busy_s:.0f} s" if busy_s >= 1 else "")
        if reason := broken():
            log_line("error", "watchdog_withheld", reason=reason)
            return (f"{text}; {reason}",)
        if busy_s <= stuck_s:
            return ("WATCHDOG=1", text)
        log_line("error", "watchdog_withheld", disk_busy_s=int(busy_s), bound_s=int(stuck_s))
        return (text,)

    await notifier.keep_alive(beat)
