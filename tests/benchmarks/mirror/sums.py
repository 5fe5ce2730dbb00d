"""Arithmetic of the cells: slopes of what was sampled, percentiles where some never came. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class Sample(NamedTuple):
    """What was seen at one moment: seconds, offsets at the target, bytes at the mirror's interface and the target's."""

    at: float
    offsets: int
    wire: int
    delivered: int


def slope(points: Sequence[tuple[float, float]]) -> float:
    """How much y grows with x, by least squares, 0 where x does not grow.

    Offsets come in steps as large as a batch, so two points alone would say little over a short time.
    """
    if len(points) < 2:
        return 0.0
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    if spread == 0:
        return 0.0
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that so many per cent do not exceed (nearest rank); infinite ones count as what never came."""
    if not values:
        return math.inf
    ranked = sorted(values)
    return ranked[max(0, math.ceil(len(ranked) * percent / 100) - 1)]
