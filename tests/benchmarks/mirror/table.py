"""The table that a person reads: a row for each figure, both sides, the level and whether it is met. Pure.

Must never come in: what the levels are.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from tests.benchmarks.mirror.cells import BARE, MIRROR, MM2, Cell
from tests.benchmarks.mirror.levels import Look, levels_of, verdict

SHOWN = {
    "bulk": ("payload_mb_per_s", "link_used", "wire_per_payload", "records_per_s", "records_per_cpu_s", "rss_mb"),
    "tcp": ("link_used",),
    "trickle": ("p50_s", "p99_s", "wire_per_payload", "rss_mb"),
    "alarms": ("p50_s", "p99_s", "never_came", "backlog_records_per_s", "rss_mb"),
    "outage": ("first_s", "caught_up_s", "of_own_time", "rss_mb"),
    "kills": ("lost", "doubled", "back_worst_s"),
    "first": ("first_s", "round_trips"),
    "many": ("begun_s", "idle_cpu_percent", "wire_bytes_per_s", "rss_mb", "away_rss_mb"),
}
WORDS = {
    "payload_mb_per_s": "MB/s",
    "link_used": "share of the link used",
    "wire_per_payload": "wire bytes per payload byte",
    "wire_bytes_per_s": "wire bytes/s",
    "records_per_s": "records/s",
    "records_per_cpu_s": "records per CPU second",
    "delivered_bytes_per_s": "bytes/s at the target's end",
    "backlog_records_per_s": "records/s of the backlog",
    "never_came": "alarms that never came",
    "rss_mb": "RSS MB",
    "p50_s": "age p50, s",
    "p99_s": "age p99, s",
    "first_s": "first record, s",
    "begun_s": "all begun, s",
    "idle_cpu_percent": "CPU of a record in ten seconds, %",
    "away_rss_mb": "RSS while the target is away, MB",
    "round_trips": "first record, round trips",
    "caught_up_s": "caught up, s",
    "of_own_time": "caught up, times the link's own",
    "lost": "lost",
    "doubled": "doubled",
    "back_worst_s": "back, worst of 5, s",
}


class Row(NamedTuple):
    """A line of the table, as text."""

    measured: str
    mirror: str
    mm2: str
    level: str
    is_met: str


HEAD = Row("measured", "edge-mirror", "MirrorMaker 2", "level", "met")


def number(value: object) -> str:
    """A figure in a few digits; a dash where there is none."""
    if value is None:
        return "–"
    if not isinstance(value, int | float):
        return str(value)
    if math.isinf(value):
        return "never"
    if abs(value) >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def rows(cells: list[Cell], look: Look) -> list[Row]:
    """Every figure that was measured, cell by cell."""
    found: list[Row] = []
    for cell in cells:
        mirror = look(cell.name, MIRROR) or look(cell.name, BARE)
        mm2 = look(cell.name, MM2)
        for side, figures in (("edge-mirror", mirror), ("MirrorMaker 2", mm2)):
            if "failed" in figures:
                found.append(Row(f"{cell.name}, {side} failed", *_sides(side, "failed"), "", ""))
        if mirror or mm2:
            found += _rows(cell, mirror, mm2, look)
    return found


def _sides(side: str, text: str) -> tuple[str, str]:
    return (text, "") if side == "edge-mirror" else ("", text)


def _rows(cell: Cell, mirror: dict[str, object], mm2: dict[str, object], look: Look) -> list[Row]:
    levels = levels_of(cell.name)
    extra = [level.figure for level in levels if level.figure not in SHOWN[cell.family]]
    found = []
    for figure in dict.fromkeys([*SHOWN[cell.family], *extra]):
        if figure not in mirror and figure not in mm2:
            continue
        what = f"{cell.name}, {WORDS[figure]}"
        judged = [verdict(level, look) for level in levels if level.figure == figure]
        texts = [
            each.level.text + (f" ({number(each.found)})" if each.level.beside and each.found is not None else "")
            for each in judged
        ]
        met = ["" if each.is_met is None else "yes" if each.is_met else "NO" for each in judged]
        found.append(Row(what, number(mirror.get(figure)), number(mm2.get(figure)), *map(", ".join, (texts, met))))
    return found


def table(cells: list[Cell], look: Look) -> str:
    """The rows as Markdown that is aligned for a terminal, too."""
    lines = [HEAD, *rows(cells, look)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    padded = [[text.ljust(width) for text, width in zip(line, widths, strict=True)] for line in lines]
    drawn = ["| " + " | ".join(line) + " |" for line in padded]
    return "\n".join([drawn[0], rule, *drawn[1:]])
