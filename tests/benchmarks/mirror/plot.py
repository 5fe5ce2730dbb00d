"""The lag over an outage, both sides in one drawing, as SVG. Pure.

Must never come in: files, other plots' data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 720, 360, 70, 30, 20, 50
COLOURS = ("#1b6ca8", "#c8553d")
Lag = Sequence[Sequence[float]]  # seconds since the link is back, records that the target lacks


def lag_plot(title: str, lags: Mapping[str, Lag], outage_s: float) -> str:
    """A drawing of lags by who they are of; ValueError: there is none."""
    points = [point for lag in lags.values() for point in lag]
    if not points:
        raise ValueError("there is no lag to draw")
    begin, end = min(at for at, _ in points), max(at for at, _ in points)
    most = max([1.0, *(lag for _, lag in points)])

    def x(at: float) -> float:
        return LEFT + (at - begin) / (end - begin or 1) * (WIDTH - LEFT - RIGHT)

    def y(lag: float) -> float:
        return HEIGHT - BOTTOM - max(0.0, lag) / most * (HEIGHT - TOP - BOTTOM)

    away = x(max(begin, -outage_s))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"',
        ' font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<rect x="{away:.1f}" y="{TOP}" width="{x(0) - away:.1f}" height="{HEIGHT - TOP - BOTTOM}" fill="#eee"/>',
        f'<text x="{(away + x(0)) / 2:.1f}" y="{TOP + 14}" text-anchor="middle" fill="#777">no link</text>',
        f'<text x="{LEFT}" y="18" font-size="14">{escape(title)}</text>',
        f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}" fill="none" stroke="#333"/>',
        f'<text x="{(LEFT + WIDTH) / 2:.0f}" y="{HEIGHT - 12}" text-anchor="middle">seconds since it is back</text>',
    ]
    for part in range(5):
        lag, at = most * part / 4, begin + (end - begin) * part / 4
        parts.append(f'<text x="{LEFT - 6}" y="{y(lag) + 4:.1f}" text-anchor="end">{lag:,.0f}</text>')
        parts.append(f'<text x="{x(at):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{at:.0f}</text>')
    for number, ((name, lag), colour) in enumerate(zip(lags.items(), COLOURS, strict=False)):
        line = " ".join(f"{x(at):.1f},{y(records):.1f}" for at, records in lag)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{LEFT + 8}" y="{TOP + 14 + 16 * number}" fill="{colour}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
