"""PURE: join lines that belong together, such as a stack trace, into one record.

A line that matches the continuation pattern belongs to the line before. Only the next line shows that a record is
complete, so the last record is buffered; `flush` returns it once the file is quiet. Does not contain: clocks, files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from gateway.sources.file_reading.places import Item, Line


class Joiner:
    """Joins lines; without a pattern every line is a record. Buffers at most `bytes_max` bytes."""

    def __init__(self, continuation: str | None, bytes_max: int) -> None:
        self._pattern = None if continuation is None else re.compile(continuation.encode())
        self._bytes_max = bytes_max
        self._held: Line | None = None

    @property
    def holds(self) -> bool:
        """Whether a line is buffered."""
        return self._held is not None

    def join(self, items: Iterable[Item]) -> list[Item]:
        """Return complete records, in order."""
        return [done for item in items for done in self._join(item)]

    def flush(self) -> list[Item]:
        """Return the buffered record as complete."""
        held, self._held = self._held, None
        return [] if held is None else [held]

    def _join(self, item: Item) -> list[Item]:
        if self._pattern is None:
            return [item]
        if not isinstance(item, Line):
            return [*self.flush(), item]
        held = self._held
        if held is not None and self._belongs(held, item):
            self._held = replace(held, text=held.text + b"\n" + item.text, after=item.after)
            return []
        done = self.flush()
        self._held = item
        return done

    def _belongs(self, held: Line, line: Line) -> bool:
        assert self._pattern is not None
        if len(held.text) + 1 + len(line.text) > self._bytes_max or held.inode != line.inode:
            return False
        return self._pattern.search(line.text) is not None
