"""Structured log lines: `time level component event key=value …` (logfmt) on standard error.

Lives here: the line's form. Must never come in: record contents, secrets, Python's logging tree (asyncio's own
warnings are routed here).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

LINES_MAX = 20
WINDOW_S = 10.0


def logfmt(value: object) -> str:
    """A value as logfmt wants it: quoted when it holds blanks, quotes, equal signs or control characters."""
    text = str(value)
    if text and not any(character in ' "=' or character < " " for character in text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def log_line(level: str, event: str, **fields: object) -> None:
    """Write one line; `level` is one of debug, info, warning, error."""
    now = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"
    pairs = "".join(f" {name}={logfmt(value)}" for name, value in fields.items())
    sys.stderr.write(f"{stamp} {level} edge-broker {event}{pairs}\n")


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
