"""PURE: convert a device's time to epoch milliseconds, or to `None`: then the time of receipt counts.

`auto` finds the unit by magnitude: each range is a factor of 10 wide and 1,000 away from the next, so none overlap.
With a configured unit, only that row applies. Does not contain: clocks.

| unit | is taken from | what it must be | from | to |
|---|---|---|---|---|
| s | number, text of a number | 1e9 to 1e10 | 2001-09-09 | 2286-11-20 |
| ms | | 1e12 to 1e13 | | |
| us | | 1e15 to 1e16 | | |
| ns | | 1e18 to 1e19 | | |
| iso | text, ISO 8601 with date and time | the same span of time | | |
| text | text in the route's `time_format`, else in a form in common use, see `time_texts` | the same span | | |
| received | none of these: missing, null, a bool, not finite, negative, 0, a clock at 1970, a date alone | | | |

A text that names no offset is in the route's `time_zone`, else in UTC. A `time_format` comes before all others.
Lower ends are inclusive, upper ones exclusive. Fractions of a millisecond are cut from whole numbers and texts, floats
are rounded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from gateway.times.time_texts import EPOCH, of_common_form, of_format, of_iso

TIME_UNITS = ("auto", "s", "ms", "us", "ns", "iso", "text")
RECEIVED = "received"  # the header `time_unit` has one of those units or this value
TEXT_CHARACTERS_MAX = 64
ABSENT = object()  # no value of JSON

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_FIRST_S, _END_S = 10**9, 10**10
_NUMBER = re.compile(r"\d+(\.\d*)?([eE][+-]?\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class TimeRule:
    """How a route reads its times: the field's name, the unit to believe in, the zone of local times, own formats."""

    field: str
    unit: str = "auto"
    zone: tzinfo = UTC
    formats: tuple[str, ...] = ()

    def value(self, document: Mapping[str, Any]) -> object:
        """Return the value of the field, ABSENT without the field.

        A field of the whole name comes first; else each dot leads into an object, or by a number into a list.
        """
        if self.field in document:
            return document[self.field]
        found: object = document
        for name in self.field.split(".") if "." in self.field else ():
            found = _below(found, name)
        return ABSENT if found is document else found

    def read(self, value: object, received_ms: int = 0) -> tuple[int, str] | None:
        """Return epoch milliseconds and the unit they were read from, or None; takes any value that JSON can hold."""
        if isinstance(value, str):
            return self._of_text(value.strip(), received_ms) if len(value) <= TEXT_CHARACTERS_MAX else None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        return _of_number(value, self.unit)

    def _of_text(self, text: str, received_ms: int) -> tuple[int, str] | None:
        if self.formats and self.unit in ("auto", "text"):
            time_ms = _time_ms(of_format, text, self.formats, self.zone, received_ms)
            if time_ms is not None:
                return time_ms, "text"
        if _NUMBER.fullmatch(text):
            return _of_number(int(text) if text.isdecimal() else float(text), self.unit)
        for unit, read in (("iso", of_iso), ("text", of_common_form)):
            time_ms = _time_ms(read, text, self.zone, received_ms) if self.unit in ("auto", unit) else None
            if time_ms is not None:
                return time_ms, unit
        return None


def device_time(value: object, time_unit: str) -> tuple[int, str] | None:
    """Return epoch milliseconds and the unit they were read from, or None; local times are in UTC."""
    return TimeRule("", time_unit).read(value)


def why_no_time(value: object) -> str:
    """Return in a phrase why a value is no time, without the value; empty for null and ABSENT."""
    if value is None or value is ABSENT:
        return ""
    if isinstance(value, str) and len(value) > TEXT_CHARACTERS_MAX:
        return f"a text of more than {TEXT_CHARACTERS_MAX} characters"
    if isinstance(value, str):
        return "a text in no known form: set time_format" if value.strip() else "an empty text"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, (int, float)):
        return "a number in none of the ranges: is the device's clock set, and time_unit right?"
    return "an object or a list: name the field in it, as in params.ts"


def _below(document: object, name: str) -> object:
    if isinstance(document, dict):
        return document.get(name, ABSENT)
    if isinstance(document, list) and name.isdecimal() and len(name) < 6 and int(name) < len(document):
        return document[int(name)]
    return ABSENT


def _of_number(value: int | float, time_unit: str) -> tuple[int, str] | None:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    for unit, per_second in _PER_SECOND.items():
        if time_unit in ("auto", unit) and _FIRST_S * per_second <= value < _END_S * per_second:
            return (value * 1_000 // per_second if isinstance(value, int) else round(value * 1_000 / per_second)), unit
    return None


def _time_ms(read: Callable[..., datetime | None], *arguments: object) -> int | None:
    """Return the epoch milliseconds of what `read` returns; None for no moment, and for one out of the span."""
    try:
        moment = read(*arguments)
        time_ms = None if moment is None else (moment - EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        return None
    return time_ms if time_ms is not None and _FIRST_S * 1_000 <= time_ms < _END_S * 1_000 else None
