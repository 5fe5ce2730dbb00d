"""The broker's log lines, on standard error.

Contains: who writes them, and a bound for those that clients can bring about. Does not contain: the line's form
(log_lines.py), record contents, secrets, Python's logging tree (asyncio's own warnings are routed here).
"""

from __future__ import annotations

import sys
import time

from drupelet.observe import log_lines
from drupelet.observe.log_window import LENGTH_S, LogWindow, Timers

LINES_MAX = 20
WINDOW_S = LENGTH_S


def log_line(level: str, event: str, **fields: object) -> None:
    """Write one line; `level` is one of debug, info, warning, error."""
    sys.stderr.write(log_lines.log_line(time.time(), level, "edge-broker", event, fields) + "\n")


class LimitedLog:
    """Lines that clients can bring about: LINES_MAX of an event in a window of WINDOW_S.

    The rest is counted, and summed in one line of its event's level at the window's end (`lines_summed`).
    """

    def __init__(self, timers: Timers) -> None:
        self._window = LogWindow(timers, self._write_sums)
        self._counts: dict[str, tuple[int, str]] = {}  # lines of an event in this window, and their level

    def line(self, level: str, event: str, **fields: object) -> None:
        """Write a line, or count it."""
        self._window.begin()
        count = self._counts.get(event, (0, level))[0]
        self._counts[event] = count + 1, level
        if count < LINES_MAX:
            log_line(level, event, **fields)

    def end_window(self) -> None:
        """Write the sums of this window, and forget it."""
        self._window.end()

    def _write_sums(self, seconds: str) -> None:
        counts, self._counts = self._counts, {}
        for event, (count, level) in counts.items():
            if count > LINES_MAX:
                log_line(level, "lines_summed", of=event, left_out=count - LINES_MAX, seconds=seconds)
