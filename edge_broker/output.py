"""How the tools speak: tables for people, JSON lines for programs, one value per row.

Nothing that comes from a record, a client or a file reaches the terminal as a control code: it is shown escaped.

Contains: layout. Does not contain: files, what the values mean.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from drupelet.printable import printable
from edge_broker.clock import SystemClock

PROGRESS_EVERY_MS = 2000


def time_text(timestamp_ms: int | None) -> str:
    """A time as people read it, `-` without one."""
    if timestamp_ms is None or timestamp_ms < 0:
        return "-"
    try:
        return (
            datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        )
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"


def duration_text(milliseconds: int) -> str:
    """A span of time in the largest unit that leaves little over, as 7 d or 90 s."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000)):
        if milliseconds >= 2 * size or (milliseconds >= size and not milliseconds % size):
            return f"{milliseconds / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{milliseconds / 1000:.1f}".removesuffix(".0") + " s"


def bytes_text(count: int) -> str:
    """Bytes in the largest unit that they fill."""
    for unit, size in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{count} bytes"


def write_json(value: object) -> None:
    """One line of JSON; what is not printable is escaped, in ASCII."""
    line = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if not line.isprintable():
        line = json.dumps(value, separators=(",", ":"))
    sys.stdout.write(line + "\n")


def write_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, none: str = "") -> None:
    """A table whose numbers are right-aligned; `none`, unless it is empty, when there are no rows."""
    rows = list(rows)
    texts = [[_text(value) for value in row] for row in rows]
    if not texts:
        if none:
            print(none)
        return
    widths = [max(len(column), *(len(row[at]) for row in texts)) for at, column in enumerate(columns)]
    right = [any(isinstance(row[at], int) for row in rows) for at in range(len(columns))]
    for row in (list(columns), *texts):
        cells = [cell.rjust(width) if to_right else cell.ljust(width)
                 for cell, width, to_right in zip(row, widths, right, strict=True)]  # fmt: skip
        print("  ".join(cells).rstrip())


def _text(value: object) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else printable(str(value))


class Progress:
    """Says on stderr how far a long work is, every two seconds; nothing when it is over sooner."""

    def __init__(self, what: str, total_bytes: int, say: Callable[[str], object] = sys.stderr.write) -> None:
        self._what = what
        self._total = max(total_bytes, 1)
        self._say = say
        self._clock = SystemClock()
        self._next_ms = self._clock.steady_ms() + PROGRESS_EVERY_MS
        self._done = 0

    def add(self, done_bytes: int, where: str) -> None:
        """So many more bytes are done."""
        self._done += done_bytes
        now_ms = self._clock.steady_ms()
        if now_ms >= self._next_ms:
            self._next_ms = now_ms + PROGRESS_EVERY_MS
            self._say(
                f"{self._what}: {self._done / 1e6:,.0f} of {self._total / 1e6:,.0f} MB "
                f"({100 * min(self._done, self._total) // self._total} %), {where}\n"
            )
