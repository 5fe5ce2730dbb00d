"""Structured log lines: `time level component event key=value …` (logfmt) on standard error.

Lives here: the line's form. Must never come in: record contents, secrets, Python's logging tree (asyncio's own
warnings are routed here).
"""

from __future__ import annotations

import sys
import time


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
