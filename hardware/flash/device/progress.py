"""Print the progress of a long step: share, rate, time left. One changing line on a terminal, else a line at intervals.

Does not contain: the step itself, a clock (an argument).
"""

import sys
import time
from collections.abc import Callable
from typing import TextIO

TERMINAL_INTERVAL_S = 0.25
LOG_INTERVAL_S = 15.0
MB = 1_000_000


class Progress:
    """One step's progress; `total_bytes` is None if only a fraction is known."""

    def __init__(
        self, step: str, out: TextIO | None = None, clock: Callable[[], float] = time.monotonic, quiet: bool = False
    ) -> None:
        out = out or sys.stderr  # the present stream, not that of the import
        self._step, self._out, self._clock, self._quiet = step, out, clock, quiet
        self._started = self._said = clock()
        self._interval_s = TERMINAL_INTERVAL_S if out.isatty() else LOG_INTERVAL_S

    def at(self, done_bytes: int, fraction: float) -> None:
        """Report the bytes done and the share of the step that they are, from 0 to 1."""
        now = self._clock()
        if self._quiet or now - self._said < self._interval_s:
            return
        self._said = now
        self._say(describe(self._step, done_bytes, fraction, now - self._started), end="")

    def done(self, done_bytes: int) -> None:
        """Report the end."""
        elapsed_s = max(self._clock() - self._started, 1e-9)
        if not self._quiet:
            rate = done_bytes / elapsed_s
            self._say(f"{self._step}: {amount(done_bytes)} in {duration(elapsed_s)}, {amount(rate)}/s", end="\n")

    def _say(self, text: str, end: str) -> None:
        if self._out.isatty():
            self._out.write(f"\r{text:<78}{end}")
        else:
            self._out.write(text + "\n")
        self._out.flush()


def describe(step: str, done_bytes: int, fraction: float, elapsed_s: float) -> str:
    """Return one line; the time left is that of the whole at the mean rate so far."""
    rate = done_bytes / elapsed_s if elapsed_s > 0 else 0
    left = f", {duration(elapsed_s * (1 - fraction) / fraction)} left" if fraction > 0 else ""
    return f"{step}: {fraction:.0%}, {amount(done_bytes)}, {amount(rate)}/s{left}"


def amount(count: float) -> str:
    """Return bytes in decimal units, as cards are sold."""
    return f"{count / 1000 / MB:.2f} GB" if count >= 1000 * MB else f"{count / MB:.1f} MB"


def duration(seconds: float) -> str:
    """Return seconds in words."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"
