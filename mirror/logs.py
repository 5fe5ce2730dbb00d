"""Log lines: `time level component event key=value ...`, one per event, on stderr (logfmt, RFC 3339 times in UTC).

No event may be worded here, and nothing may be written to stdout.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from datetime import UTC, datetime

COMPONENT = "mirror"
REPEAT_S = 30.0  # a library's message, word for word the same, at most once in this time

_log = logging.getLogger(COMPONENT)


def line(event: str, fields: dict[str, object]) -> str:
    """Return `event key=value ...`; values with spaces, quotes or `=` are written as JSON strings."""
    return " ".join([event, *(f"{key}={_value(value)}" for key, value in fields.items() if value is not None)])


def _value(value: object) -> str:
    text = str(value)
    return text if text and not any(c in text for c in ' "=') and text.isprintable() else json.dumps(text)


def info(event: str, **fields: object) -> None:
    """Log an event of normal work."""
    _log.info(line(event, fields))


def warning(event: str, **fields: object) -> None:
    """Log an event that someone should know of and that the mirror gets over by itself."""
    _log.warning(line(event, fields))


def error(event: str, **fields: object) -> None:
    """Log an event that costs data or needs someone."""
    _log.error(line(event, fields))


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        text = record.getMessage()
        if record.name != COMPONENT:
            text = line("library", {"name": record.name, "message": text})
        if record.exc_info:
            text = f"{text} error={_value(repr(record.exc_info[1]))}"
        return f"{when} {record.levelname.lower()} {COMPONENT} {text}"


class _NoRepeats(logging.Filter):
    """Lets a library's message through once in REPEAT_S: clients repeat themselves ten times a second in an outage."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name == COMPONENT:
            return True
        text, now = record.getMessage(), time.monotonic()
        self._last = {message: at for message, at in self._last.items() if now - at < REPEAT_S}
        return self._last.setdefault(text, now) == now


def set_up() -> None:
    """Send the mirror's events and its libraries' warnings to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter())
    handler.addFilter(_NoRepeats())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    _log.setLevel(logging.INFO)
