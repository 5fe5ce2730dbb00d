"""A job's log lines on stderr, one per event, in the form of drupelet/observe/log_lines.py."""

import sys
import time

from drupelet.observe.log_lines import log_line

TEXT_CHARACTERS_MAX = 2_000


def log(level: str, event: str, **fields: object) -> None:
    """Write one line; a value longer than 2,000 characters, such as a Java stack, is cut."""
    short = {key: value if value is None else str(value)[:TEXT_CHARACTERS_MAX] for key, value in fields.items()}
    sys.stderr.write(log_line(time.time(), level, "spark", event, short) + "\n")
    sys.stderr.flush()
