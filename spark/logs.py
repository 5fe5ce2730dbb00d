"""Log lines on stderr: `time level component event key=value …`, one per event (logfmt, RFC 3339 UTC)."""

import json
import sys
from datetime import UTC, datetime

TEXT_CHARACTERS_MAX = 2_000


def log(level: str, event: str, **fields: object) -> None:
    """Write one line; a value with blanks or quotes is quoted, a long one is cut to 2,000 characters."""
    time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    words = "".join(f" {key}={written(value)}" for key, value in fields.items())
    sys.stderr.write(f"{time} {level} spark {event}{words}\n")
    sys.stderr.flush()


def written(value: object) -> str:
    """Write one value as logfmt has it."""
    text = str(value)[:TEXT_CHARACTERS_MAX]
    plain = text.isprintable() and not any(mark in text for mark in ' "=')
    return text if plain and text else json.dumps(text, ensure_ascii=False)
