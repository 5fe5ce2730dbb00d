"""Conditions that requests wait for until this broker knows that they hold.

Does not contain: what a condition checks, the clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class _Waiter(NamedTuple):
    is_met: Callable[[], bool]
    until_ms: float
    on_expired: Callable[[], None]


class ChangeWaits:
    """Conditions with a deadline, by the clock `now_ms`."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._waiters: list[_Waiter] = []

    def until(self, is_met: Callable[[], bool], wait_ms: float, on_expired: Callable[[], None]) -> None:
        """Call `is_met` at each change until it returns True; `on_expired` if it has not after so many ms."""
        self._waiters.append(_Waiter(is_met, self._now_ms() + wait_ms, on_expired))

    def check(self) -> None:
        """Ask each condition once more. A condition may add others, which are asked at the next change."""
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            self._waiters += [each for each in waiters if not each.is_met()]

    def expire(self, now_ms: float) -> None:
        """End the waits whose time is over."""
        if any(now_ms >= each.until_ms for each in self._waiters):
            waiters, self._waiters = self._waiters, []
            for each in waiters:
                if now_ms >= each.until_ms:
                    each.on_expired()
                else:
                    self._waiters.append(each)
