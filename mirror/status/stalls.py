"""PURE. Decides which partitions stand still: records wait at the source, and for too long none of them became safe.

| a partition | stands still after |
|---|---|
| with any problem of its own, or of an end | `timeout_s` |
| without one | the same and TURNS times what the link needs for all that waits, TIMES_MAX x `timeout_s` at most |

Does not contain: clocks, where ends and positions come from, causes (lag_watch.py).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

TIMES_MAX = 10
TURNS = 2


class Standstill(NamedTuple):
    """The source's offset below which all is safe, and the time since which it has not moved."""

    position: int
    since: float


class Stalls:
    """Watches positions; times in seconds of any monotonic clock."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._standing: dict[Hashable, Standstill] = {}

    def note(self, name: Hashable, position: int, lag: int, now: float) -> float:
        """Note a partition's position; return for how many seconds it has stood still with a lag."""
        standing = self._standing.get(name)
        if not lag:
            self._standing.pop(name, None)
            return 0.0
        if standing is None or standing.position != position:
            self._standing[name] = Standstill(position, now)
            return 0.0
        return now - standing.since

    def forget(self, name: Hashable) -> None:
        """Watch it no more."""
        self._standing.pop(name, None)

    def limit_s(self, waiting_bytes: int, rate: float | None, *, is_troubled: bool) -> float:
        """Return after how many seconds a partition counts as stalled, while the link carries `rate` bytes/s."""
        if is_troubled or not rate:
            return self.timeout_s
        return min(TIMES_MAX * self.timeout_s, self.timeout_s + TURNS * waiting_bytes / rate)
