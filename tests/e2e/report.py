"""How the demo shows itself: tables, and live lines that are redrawn on a terminal and printed now and then in a log.

Text only; no measuring and no judging here.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from typing import TextIO

LOG_INTERVAL_S = 5.0


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns as wide as their widest cell; the first is left-aligned, the others right-aligned; None is `-`."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(len(line[n]) for line in [list(heads), *cells]) for n in range(len(heads))]
    lines = [_line(heads, widths), "  ".join("-" * width for width in widths)]
    return "\n".join([*lines, *(_line(row, widths) for row in cells)])


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first = cells[0].ljust(widths[0])
    rest = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
    return "  ".join([first, *rest]).rstrip()


def amount(count: float, unit: str = "B") -> str:
    """A number of bytes as people read it: 1.5 kB, 29.0 MB."""
    for prefix in ("", "k", "M", "G"):
        if abs(count) < 1_000 or prefix == "G":
            return f"{count:.0f} {unit}" if not prefix else f"{count:.1f} {prefix}{unit}"
        count /= 1_000
    raise AssertionError("unreachable")


class Screen:
    """Events are printed as they come; the block of live lines stays below them on a terminal."""

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self._out = out
        self._terminal = out.isatty()
        self._drawn = 0
        self._printed_at = float("-inf")

    def event(self, text: str) -> None:
        """Print something that happened, above the live lines."""
        self._clear()
        print(text, file=self._out, flush=True)

    def live(self, lines: Sequence[str]) -> None:
        """Show the present state of the parts; in a log at most every LOG_INTERVAL_S seconds."""
        if not self._terminal and time.monotonic() - self._printed_at < LOG_INTERVAL_S:
            return
        self._printed_at = time.monotonic()
        self._clear()
        width = shutil.get_terminal_size((160, 24)).columns - 1 if self._terminal else 1_000
        for line in lines:
            print(line[:width], file=self._out)
        self._drawn = len(lines) if self._terminal else 0
        self._out.flush()

    def _clear(self) -> None:
        if self._drawn:
            print(f"\x1b[{self._drawn}A\x1b[J", end="", file=self._out)
            self._drawn = 0
