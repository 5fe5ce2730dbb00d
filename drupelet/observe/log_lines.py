"""Format a log line: `time level component event key=value …` (logfmt, RFC 3339 times in UTC).

Does not contain: clocks, streams, Python's logging tree (log_tree.py), the wording of an event. Callers pass names and
figures, never payloads or secrets.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from drupelet.printable import name_text


def log_line(now_s: float, level: str, component: str, event: str, fields: Mapping[str, object]) -> str:
    """One line without its end; `now_s` are seconds of the wall clock, fields of None are left out."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_s))
    pairs = "".join(f" {name}={name_text(value)}" for name, value in fields.items() if value is not None)
    return f"{stamp}.{int(now_s * 1000) % 1000:03d}Z {level} {component} {event}{pairs}"
