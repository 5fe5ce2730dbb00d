"""Reads the target's clock from its last write to a topic with LogAppendTime, and the time since boot of this host.

CLOCK_BOOTTIME goes on while the machine sleeps, as the target's clock does. Does not contain: decisions by it.
"""

from __future__ import annotations

import time


def boot_s() -> float:
    """Return seconds since boot, including time asleep."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class TargetClock:
    """The latest time that the target's clock may show."""

    def __init__(self) -> None:
        self._told: tuple[int, float] | None = None

    def note_time(self, at_ms: int, asked_s: float) -> None:
        """Note that it showed `at_ms` some time after `asked_s` since boot; ignores -1, as with CreateTime."""
        if at_ms >= 0:
            self._told = at_ms, asked_s

    @property
    def now_ms(self) -> int | None:
        """Milliseconds since 1970, None before the first `note_time`."""
        if self._told is None:
            return None
        at_ms, asked_s = self._told
        return at_ms + int((boot_s() - asked_s) * 1000)


def wall_ms() -> int:
    """Return milliseconds since 1970 by the clock of this machine, which may jump."""
    return int(time.time() * 1000)
