"""What the mirror should come to, cell by cell, and whether it does. Pure.

A level is about one figure of one cell, or about that figure beside another cell's or MirrorMaker's. Must never come
in: how anything is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.benchmarks.mirror.cells import BARE, GOOD, LOSSY, MIRROR, MM2, SHAPED, one_partition

Look = Callable[[str, str], dict[str, Any]]  # figures of a cell and a side, empty when there are none


@dataclass(frozen=True, slots=True)
class Level:
    """What a figure of a cell must be; `beside` is a side and a cell whose figure it is divided by."""

    cell: str
    figure: str
    bound: float
    is_most: bool
    beside: tuple[str, str] | None = None

    @property
    def text(self) -> str:
        """As a person reads it."""
        sign = "≤" if self.is_most else "≥"
        return f"{sign} {self.bound:g}" + (f" of {' '.join(self.beside)}" if self.beside else "")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found; None: not measured yet."""

    level: Level
    found: float | None

    @property
    def is_met(self) -> bool | None:
        """Whether it is as it should be."""
        if self.found is None:
            return None
        return self.found <= self.level.bound if self.level.is_most else self.found >= self.level.bound


def _levels() -> list[Level]:
    found: list[Level] = []

    def most(cell: str, figure: str, bound: float) -> None:
        found.append(Level(cell, figure, bound, is_most=True))

    def least(cell: str, figure: str, bound: float, beside: tuple[str, str] | None = None) -> None:
        found.append(Level(cell, figure, bound, is_most=False, beside=beside))

    for link in SHAPED:
        most(f"bulk-a@{link.name}", "wire_per_payload", 0.19)
        most(f"bulk-a-metered@{link.name}", "wire_per_payload", 0.16)
        for data in "abc":
            least(f"bulk-{data}@{link.name}", "link_used", 0.93)
        for data in one_partition(link):
            least(f"bulk-{data}-1p@{link.name}", "delivered_bytes_per_s", 0.9, (BARE, f"tcp@{link.name}"))
        most(f"first@{link.name}", "round_trips", 14)
        most(f"first-secured@{link.name}", "round_trips", 26)
    for name in ("lan", *(link.name for link in SHAPED)):
        least(f"pull-bulk-a@{name}", "records_per_s", 1)
    for link in (GOOD, LOSSY):
        most(f"trickle-500@{link.name}", "wire_per_payload", 0.30)
        most(f"outage@{link.name}", "first_s", 3)
        most(f"outage@{link.name}", "of_own_time", 1.15)
    most(f"trickle-500@{GOOD.name}", "p99_s", GOOD.round_trip_s + 0.3)
    most(f"trickle-500@{LOSSY.name}", "p99_s", 1.2)
    most(f"trickle-0.1@{GOOD.name}", "wire_bytes_per_s", 65)
    most(f"alarms@{LOSSY.name}", "p99_s", 2)
    for figure, bound in (("lost", 0), ("doubled", 0), ("back_worst_s", 3)):
        most(f"kills@{GOOD.name}", figure, bound)
    most("first@lan", "first_s", 1)
    most("many@lan", "begun_s", 30)
    most("many@lan", "idle_cpu_percent", 2)
    most(f"many@{GOOD.name}", "wire_bytes_per_s", 600)
    most(f"many@{GOOD.name}", "away_rss_mb", 96)
    least("bulk-a@lan", "records_per_cpu_s", 3, (MM2, "bulk-a@lan"))
    least("bulk-a@lan", "records_per_s", 1, (MM2, "bulk-a@lan"))
    return found


LEVELS = _levels()
RSS_MB = 64.0


def levels_of(cell: str) -> list[Level]:
    """What is asked of a cell; memory is asked of each that tells it."""
    return [level for level in LEVELS if level.cell == cell] + [Level(cell, "rss_mb", RSS_MB, is_most=True)]


def verdict(level: Level, look: Look) -> Verdict:
    """Whether the mirror comes to it."""
    found = look(level.cell, MIRROR).get(level.figure)
    if found is None or level.beside is None:
        return Verdict(level, found)
    side, cell = level.beside
    other = look(cell, side).get(level.figure)
    return Verdict(level, found / other if other else None)
