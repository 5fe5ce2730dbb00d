"""Whether the disk takes writes at once, or makes the writer wait.

| pace | event | next |
|---|---|---|
| quick: the loop writes, into the page cache | a write took more than SLOW_S | slow |
| quick | more than UNSYNCED_BYTES_MAX are not synced: the kernel will soon make writers wait | slow |
| slow: the worker `writer` writes | QUICK_BYTES in a row, less than QUICK_S each write, little is unsynced | quick |

A small write that was quick says little about a large one that comes next: it counts as WRITE_BYTES_MIN, no more.

Above EARLY_SYNC_BYTES what is written is synced at once and not when its time comes, so that a disk that keeps up
never gets there; what a round in progress covers does not ask for another one. One pace for all partitions, as they lie
on one device.

Does not contain: clocks, threads. Source: Linux's balance_dirty_pages.
"""

from __future__ import annotations

SLOW_S = 0.020
QUICK_S = 0.005
QUICK_BYTES = 4 << 20
WRITE_BYTES_MIN = 16 << 10
EARLY_SYNC_BYTES = 32 << 20
UNSYNCED_BYTES_MAX = 128 << 20


class WriteThrottle:
    """The pace of one data directory; `unsynced_bytes` is what is written and not yet confirmed, `syncing_bytes` as
    much of it as the round in progress covers.
    """

    __slots__ = ("_quick_bytes", "slow", "slow_total", "syncing_bytes", "unsynced_bytes")

    def __init__(self) -> None:
        self.slow = False
        self.slow_total = 0
        self.unsynced_bytes = 0
        self.syncing_bytes = 0
        self._quick_bytes = 0

    @property
    def sync_early(self) -> bool:
        """Whether so much is unsynced that a sync must begin before its time."""
        return self.unsynced_bytes - self.syncing_bytes > EARLY_SYNC_BYTES

    def held_up(self, seconds: float, size: int) -> bool:
        """Count a write of the loop; True when it took long, or when so much is unsynced that it is to be counted."""
        self.unsynced_bytes += size
        return seconds > SLOW_S or self.unsynced_bytes > UNSYNCED_BYTES_MAX

    def wrote_slowly(self, seconds: float, unsynced_bytes: int) -> None:
        """The loop was held up; what is unsynced has been counted."""
        self.unsynced_bytes = unsynced_bytes
        if seconds > SLOW_S or unsynced_bytes > UNSYNCED_BYTES_MAX:
            self.slow = True
            self.slow_total += 1
            self._quick_bytes = 0

    def wrote_behind(self, seconds: float, size: int) -> None:
        """The worker has written."""
        quick = seconds < QUICK_S and self.unsynced_bytes <= UNSYNCED_BYTES_MAX
        self._quick_bytes = self._quick_bytes + max(size, WRITE_BYTES_MIN) if quick else 0
        if self._quick_bytes >= QUICK_BYTES:
            self.slow = False
