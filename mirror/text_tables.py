"""PURE. Formats tables and figures for a person; `edge-mirror plan` and `status` print them.

Does not contain: what the figures mean.
"""

from __future__ import annotations

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str | int | None]], texts: Sequence[int] = ()) -> str:
    """Return a table: text left-aligned, numbers right-aligned, - for None.

    If `texts` is not empty, only the first column and the columns in `texts` are text.
    """
    shown = [tuple(head), *(tuple("-" if cell is None else str(cell) for cell in row) for row in rows)]
    left = (
        set(texts) | {0} if texts else {n for row in rows for n, cell in enumerate(row) if isinstance(cell, str)} | {0}
    )
    widths = [max(len(row[column]) for row in shown) for column in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in shown
    )


def count_text(count: float | None) -> str:
    """Return a count as 12,345; below ten with a tenth if there is one."""
    if count is None:
        return "-"
    return f"{count:.1f}".removesuffix(".0") if count < 10 else f"{count:,.0f}"


def bytes_text(count: float | None) -> str:
    """Return bytes in the largest unit that they fill."""
    if count is None:
        return "-"
    for unit, size in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{count:.0f} B"


def duration_text(seconds: float | None) -> str:
    """Return a span of time in the one or two largest units, as 3 d 4 h."""
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    left, said = round(seconds), []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        amount, left = divmod(left, size)
        if amount:
            said.append(f"{amount} {unit}")
        elif said:
            break
        if len(said) == 2:
            break
    return " ".join(said)
