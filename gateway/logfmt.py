"""Log lines as the project writes them: `time level component event key=value …`, one per event, on stderr.

No secret may come in here: callers pass names and figures, never payloads or passwords.
"""

from __future__ import annotations

import json
import logging
import sys
import time

_FIELDS = "drupelet_fields"


class LogfmtFormatter(logging.Formatter):
    """Formats a record as one logfmt line; a line of a library becomes its `message` field."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        own: dict[str, object] | None = getattr(record, _FIELDS, None)
        event = "message" if own is None else str(record.msg)
        fields: dict[str, object] = {"text": record.getMessage()} if own is None else own
        if record.exc_info:
            fields = {**fields, "traceback": self.formatException(record.exc_info)}
        words = [f"{stamp}.{int(record.msecs):03d}Z", record.levelname.lower(), record.name, event]
        return " ".join(words + [f"{name}={quote(value)}" for name, value in fields.items()])


def quote(value: object) -> str:
    """Return a value as logfmt wants it: bare where that is unambiguous, else as a JSON string."""
    text = str(value)
    if text and text.isprintable() and not any(mark in text for mark in ' ="'):
        return text
    return json.dumps(text, ensure_ascii=False)


def set_up(level: str) -> None:
    """Send every logger's lines to stderr; libraries whose retries we report ourselves stay quiet."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogfmtFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # a line per retry, several a second, wears the card
    logging.getLogger("asyncio").setLevel(logging.WARNING)


class Log:
    """Writes the events of one component."""

    def __init__(self, component: str) -> None:
        self._logger = logging.getLogger(component)

    def info(self, event: str, **fields: object) -> None:
        """Write an event that a person may want to know of."""
        self._logger.info(event, extra={_FIELDS: fields})

    def warning(self, event: str, **fields: object) -> None:
        """Write an event that a person should look at when it goes on."""
        self._logger.warning(event, extra={_FIELDS: fields})

    def error(self, event: str, *, trace: bool = False, **fields: object) -> None:
        """Write an event that needs a person; `trace` adds the exception that is being handled."""
        self._logger.error(event, exc_info=trace, extra={_FIELDS: fields})
