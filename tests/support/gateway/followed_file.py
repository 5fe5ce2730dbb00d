"""Follows one log file with the gateway's reader."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from gateway.sources.file_reading.places import FamilyState, Item, Line
from gateway.sources.files.tail import Tail

LINE_BYTES_MAX = 100


def follow(path: Path, state: FamilyState | None = None, *, start_at_end: bool = False) -> Tail:
    clock = count().__next__  # a second for each read that finds nothing
    return Tail(path, state, line_bytes_max=LINE_BYTES_MAX, quiet_s=2, clock=clock, start_at_end=start_at_end)


def read_all(tail: Tail) -> list[Item]:
    """Read until ten reads in a row bring nothing, which is past every waiting for quiet."""
    items: list[Item] = []
    quiet = 0
    while quiet < 10:
        new = tail.read()
        quiet = 0 if new else quiet + 1
        items += new
    return items


def texts(items: list[Item]) -> list[bytes]:
    assert all(isinstance(item, Line) for item in items), items
    return [item.text for item in items if isinstance(item, Line)]


def append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)
