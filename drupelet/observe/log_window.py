"""End a window of bounded log lines by a timer, so that omitted lines are summed without a further line.

A window begins with its first line. It ends LENGTH_S later, or at a stop of the program. After a crash the sums of at
most LENGTH_S are missing.

Contains: the window's begin and end. Does not contain: the choice of omitted lines, the text of a sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

LENGTH_S = 10.0


class Timer(Protocol):
    """A call that is due later, as asyncio's TimerHandle."""

    def cancel(self) -> object:
        """Never call it."""


class Timers(Protocol):
    """The part of an event loop that ends a window; asyncio's loops have it."""

    def time(self) -> float:
        """Return seconds of a clock that is never set back."""

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Timer:
        """Call back after so many seconds."""


class LogWindow:
    """One window after another; `write_sums` gets the length of one that ended, in seconds as text."""

    def __init__(self, timers: Timers, write_sums: Callable[[str], None]) -> None:
        self._timers, self._write_sums = timers, write_sums
        self._timer: Timer | None = None
        self._begin_s = 0.0

    def begin(self) -> None:
        """Begin a window unless one is open; call it for each line."""
        if self._timer is None:
            self._begin_s = self._timers.time()
            self._timer = self._timers.call_later(LENGTH_S, self.end)

    def end(self) -> None:
        """End the open window, and have its sums written; call it when the program stops, too."""
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        self._write_sums(f"{self._timers.time() - self._begin_s:.1f}")
