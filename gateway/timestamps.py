"""PURE: from the time that a device gives to epoch milliseconds, or to "none, take the time of receipt".

No clock may come in here. `auto` tells the unit by magnitude: the ranges do not touch, as each is a factor of 10 wide
and 1,000 away from the next. With a unit that is set, only that row is looked at.

| unit | is taken from | what it must be | from | to |
|---|---|---|---|---|
| s | number, text of a number | 1e9 to 1e10 | 2001-09-09 | 2286-11-20 |
| ms | | 1e12 to 1e13 | | |
| us | | 1e15 to 1e16 | | |
| ns | | 1e18 to 1e19 | | |
| iso | text, ISO 8601 with date and time; UTC where it names no offset | the same span of time | | |
| received | none of these: missing, null, a bool, not finite, negative, 0, a clock at 1970, a date alone | | | |

Lower ends are inclusive, upper ones exclusive. Fractions of a millisecond are cut from whole numbers and ISO texts,
floats are rounded. Source: ISO 8601 as `datetime.fromisoformat` of Python 3.11 reads it.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta

TIME_UNITS = ("auto", "s", "ms", "us", "ns", "iso")
RECEIVED = "received"  # beside them the only value of the header `time_unit`
TEXT_CHARACTERS_MAX = 64

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_FIRST_S, _END_S = 10**9, 10**10
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER = re.compile(r"\d+(\.\d*)?([eE][+-]?\d+)?", re.ASCII)
_DATE_AND_TIME = re.compile(r"[\dW-]{7,10}[T ]\d\d.*", re.ASCII)


def device_time(value: object, time_unit: str) -> tuple[int, str] | None:
    """Return epoch milliseconds and the unit they were read from, or None; takes any value that JSON can hold."""
    if isinstance(value, str):
        return _of_text(value.strip(), time_unit) if len(value) <= TEXT_CHARACTERS_MAX else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return _of_number(value, time_unit)


def _of_text(text: str, time_unit: str) -> tuple[int, str] | None:
    if _NUMBER.fullmatch(text):
        return _of_number(int(text) if text.isdecimal() else float(text), time_unit)
    if time_unit in ("auto", "iso") and _DATE_AND_TIME.fullmatch(text.upper()):
        return _of_iso(text.upper())
    return None


def _of_number(value: int | float, time_unit: str) -> tuple[int, str] | None:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    for unit, per_second in _PER_SECOND.items():
        if time_unit in ("auto", unit) and _FIRST_S * per_second <= value < _END_S * per_second:
            return (value * 1_000 // per_second if isinstance(value, int) else round(value * 1_000 / per_second)), unit
    return None


def _of_iso(text: str) -> tuple[int, str] | None:
    try:
        moment = datetime.fromisoformat(text)
        time_ms = ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        return None
    return (time_ms, "iso") if _FIRST_S * 1_000 <= time_ms < _END_S * 1_000 else None
