"""When what runs here was built: no clock that is right shows an earlier date.

| installed from | the date is |
|---|---|
| a wheel | of its commit, in `build_date.txt`, written when the wheel was built |
| a checkout | SOURCE_S |

A board without a clock chip starts in 1970: what certificates are judged by is the later of its clock and this. Must
never come in: git on a board, clocks.
"""

from __future__ import annotations

import os

DATE_FILE = os.path.join(os.path.dirname(__file__), "build_date.txt")
SOURCE_S = 1_795_564_800  # 2026-11-25, when this was written


def build_date_s() -> int:
    """The date of the build in Unix time, at midnight or later."""
    try:
        with open(DATE_FILE, encoding="ascii") as file:
            return max(int(file.read()), SOURCE_S)
    except (OSError, ValueError):
        return SOURCE_S
