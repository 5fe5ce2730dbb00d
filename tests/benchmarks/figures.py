"""Figures of several sides over several rounds: kept part by part, their medians, and the table that people read.

A part that fails on one side costs no other part and no other side: it is named at the end, and the exit code is 1.
Does not contain: what is measured.
"""

from __future__ import annotations

import statistics
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

Figures = dict[str, dict[str, float]]
"""By row, then by figure."""

_WORDS = {"cpu": "CPU", "rss": "RSS", "mb": "MB", "us": "µs", "percent": "%"}


class Rounds:
    """What was measured of each side in each round, and what could not be."""

    def __init__(self, names: Iterable[str]) -> None:
        self.by_name: dict[str, list[Figures]] = {name: [] for name in names}
        self.failures: list[str] = []

    def begin(self, name: str) -> Figures:
        """Begin a round of a side; its figures, to be filled."""
        self.by_name[name].append({})
        return self.by_name[name][-1]

    @contextmanager
    def part(self, name: str, what: str) -> Iterator[None]:
        """Measure a part of a side; one that fails is noted with its trace."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, the figures of all others are worth having
            reason = str(error).partition("\n")[0] or type(error).__name__
            self.failures.append(f"{name}, round {len(self.by_name[name])}: {what}: {reason}")
            traceback.print_exc(file=sys.stderr)

    def medians(self) -> dict[str, Figures]:
        """The medians of each side."""
        return {name: medians(figures) for name, figures in self.by_name.items()}

    def finish(self, tell: Callable[[str], object] = print) -> int:
        """Name what was not measured; the exit code."""
        for failure in self.failures:
            tell(f"not measured: {failure}")
        return 1 if self.failures else 0


def medians(rounds: Iterable[Figures]) -> Figures:
    """The median of every figure over the rounds that have it."""
    found: dict[str, dict[str, list[float]]] = {}
    for figures in rounds:
        for row, values in figures.items():
            for figure, value in values.items():
                found.setdefault(row, {}).setdefault(figure, []).append(value)
    return {
        row: {figure: statistics.median(values) for figure, values in figures.items()} for row, figures in found.items()
    }


def in_words(figure: str) -> str:
    """A figure's name as a table has it: `broker_cpu_us_per_record` is `broker CPU µs/record`."""
    words = " ".join(_WORDS.get(word, word) for word in figure.split("_"))
    return words.replace(" per ", "/")


def table(results: Mapping[str, Figures]) -> str:
    """A Markdown table: each figure of each side, and the first side's ratio to each other one; a dash: none."""
    names = list(results)
    others = names[1:]
    lines = ["| measured | " + " | ".join(names) + " | " + " | ".join(f"ratio to {name}" for name in others) + " |"]
    lines.append("|---|" + "---:|" * (len(names) + len(others)))
    for row, figure in dict.fromkeys(pair for each in results.values() for pair in _pairs(each)):
        values = [results[name].get(row, {}).get(figure) for name in names]
        shown = [_shown(value) for value in values]
        ratios = [f"{values[0] / value:.2f}" if value and values[0] is not None else "–" for value in values[1:]]
        lines.append(f"| {row}, {in_words(figure)} | " + " | ".join(shown + ratios) + " |")
    return "\n".join(lines)


def _pairs(figures: Figures) -> Iterator[tuple[str, str]]:
    return ((row, figure) for row, values in figures.items() for figure in values)


def _shown(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.3g}" if value < 100 else f"{value:,.0f}"
