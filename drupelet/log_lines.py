"""The form of a log line: `time level component event key=value …` (logfmt, RFC 3339 times in UTC).

Must never come in: the clock, a stream, Python's logging tree (log_tree.py), and any event's wording. What callers hand
over are names and figures, never payloads or secrets.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping


def value_text(value: object) -> str:
    """A value as logfmt wants it: bare where that is unambiguous, else a JSON string without control characters."""
    text = str(value)
    if text and text.isprintable() and not any(mark in text for mark in ' ="'):
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return quoted if quoted.isprintable() else json.dumps(text)


def log_line(now_s: float, level: str, component: str, event: str, fields: Mapping[str, object]) -> str:
    """One line without its end; `now_s` are seconds of the wall clock, fields of None are left out."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_s))
    pairs = "".join(f" {name}={value_text(value)}" for name, value in fields.items() if value is not None)
    return f"{stamp}.{int(now_s * 1000) % 1000:03d}Z {level} {component} {event}{pairs}"
