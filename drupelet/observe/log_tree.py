"""Log lines of a part whose libraries log through Python's logging tree: its events and theirs, on standard error.

| writer | component, event and fields of the line |
|---|---|
| the part | as given to `Log`; an exception as its sentence |
| a library, from warning on | the part, `library`, the library's `name` and `message`, without `[Errno …]` |

A library's message, word for word the same, is written once in REPEAT_S.
Does not contain: the wording of an event. A part without Python's logging uses log_lines.py.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable

from drupelet.errors import sentence, without_numbers
from drupelet.observe.log_lines import log_line

REPEAT_S = 30.0  # clients repeat themselves ten times a second in an outage, which wears the card
_FIELDS = "drupelet_fields"


class Log:
    """Writes the events of one component."""

    def __init__(self, component: str) -> None:
        self._logger = logging.getLogger(component)

    def info(self, event: str, **fields: object) -> None:
        """Write an event of normal work."""
        self._logger.info(event, extra={_FIELDS: fields})

    def warning(self, event: str, **fields: object) -> None:
        """Write an event that the operator should check if it continues."""
        self._logger.warning(event, extra={_FIELDS: fields})

    def error(self, event: str, **fields: object) -> None:
        """Write an event that costs data or needs the operator."""
        self._logger.error(event, extra={_FIELDS: fields})

    def exception(self, event: str, **fields: object) -> None:
        """Write an error with the traceback of the present exception."""
        self._logger.exception(event, extra={_FIELDS: fields})


class LineFormatter(logging.Formatter):
    """Formats a record as one line; `part` is the component of libraries' messages."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self._part = part

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        component, event, fields = record.name, str(record.msg), getattr(record, _FIELDS, None)
        if fields is not None:
            fields = {
                name: sentence(value) if isinstance(value, BaseException) else value for name, value in fields.items()
            }
        else:
            component, event = self._part, "library"
            fields = {"name": record.name, "message": without_numbers(record.getMessage())}
        if record.exc_info:
            fields = {**fields, "traceback": self.formatException(record.exc_info)}
        return log_line(record.created, record.levelname.lower(), component, event, fields)


class NoRepeats(logging.Filter):
    """Lets a library's message through once in REPEAT_S."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is to be written."""
        if hasattr(record, _FIELDS):
            return True
        text, now = record.getMessage(), time.monotonic()
        self._last = {message: at for message, at in self._last.items() if now - at < REPEAT_S}
        return self._last.setdefault(text, now) == now


def set_up(part: str, level: str = "info", silent: Iterable[str] = ()) -> None:
    """Send the part's events from `level` on and its libraries' warnings to stderr; `silent` names libraries that are
    not heard at all.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(part))
    handler.addFilter(NoRepeats())
    own = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(level=max(own, logging.WARNING), handlers=[handler], force=True)
    logging.getLogger(part).setLevel(own)
    for library in silent:
        logging.getLogger(library).setLevel(logging.CRITICAL)
