"""The target's clock, as its last write to a topic with LogAppendTime told it, and the time since boot here.

CLOCK_BOOTTIME goes on while the machine sleeps, as the target's clock does. Must never come in: what is judged by it.
"""

from __future__ import annotations

import time


def boot_s() -> float:
    """Seconds since boot, those asleep among them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class TargetClock:
    """What the target's clock shows at the most."""

    def __init__(self) -> None:
        self._told: tuple[int, float] | None = None

    def tell(self, at_ms: int, asked_s: float) -> None:
        """Note that it showed `at_ms` some time after `asked_s` since boot; -1, as with CreateTime, tells nothing."""
        if at_ms >= 0:
            self._told = at_ms, asked_s

    @property
    def now_ms(self) -> int | None:
        """Milliseconds since 1970, None while nothing was told."""
        if self._told is None:
            return None
        at_ms, asked_s = self._told
        return at_ms + int((boot_s() - asked_s) * 1000)


def wall_ms() -> int:
    """Return milliseconds since 1970 by the clock of this machine, which may jump."""
    return int(time.time() * 1000)
