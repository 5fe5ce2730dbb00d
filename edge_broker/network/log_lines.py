"""The broker's log lines, on standard error.

Lives here: who writes them, and a bound for those that clients can bring about. Must never come in: the line's form
(drupelet/log_lines.py), record contents, secrets, Python's logging tree (asyncio's own warnings are routed here).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from drupelet import log_lines

LINES_MAX = 20
WINDOW_S = 10.0


def log_line(level: str, event: str, **fields: object) -> None:
    """Write one line; `level` is one of debug, info, warning, error."""
    sys.stderr.write(log_lines.log_line(time.time(), level, "edge-broker", event, fields) + "\n")


class LimitedLog:
    """Lines that clients can bring about: LINES_MAX of an event in WINDOW_S, the rest is counted in the next one."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._windows: dict[str, tuple[float, int]] = {}

    def line(self, level: str, event: str, **fields: object) -> None:
        """Write a line, or count it."""
        now = self._now()
        begin, count = self._windows.get(event, (now, 0))
        if now - begin >= WINDOW_S:
            if count > LINES_MAX:
                fields["left_out"] = count - LINES_MAX
            begin, count = now, 0
        self._windows[event] = begin, count + 1
        if count < LINES_MAX:
            log_line(level, event, **fields)
