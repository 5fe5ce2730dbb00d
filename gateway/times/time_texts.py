"""PURE: parse the text of a time: ISO 8601, common forms, and the formats of a route.

Texts have a bounded length; functions raise only the errors that they name. Does not contain: clocks.

| form | example | zone |
|---|---|---|
| ISO 8601, date and time | `2018-02-15T01:00:50`, `2018-02-15 01:00:50.5+01:00` | the offset, else the route's |
| the same, year first with `.` or `/` | `2018.02.15 01:00:50`, `2018/02/15 01:00:50` | none, a name, or an offset |
| either, then a zone | `2018-02-15 01:00:50 UTC` | a name, or an offset |
| RFC 1123, RFC 5322 | `Thu, 15 Feb 2018 01:00:50 GMT`, `15 Feb 2018 01:00 +0100` | a name, or an offset |
| asctime(3), date(1) | `Thu Feb 15 01:00:50 2018`, `Thu Feb 15 01:00:50 UTC 2018` | none, or a name |
| a `time_format` | `15/02/2018 01:00` by `%d/%m/%Y %H:%M` | `%z`, else the route's |

A day before a month, as dd/mm/yyyy, is read by a `time_format` alone: it cannot be told from mm/dd/yyyy.
Sources: RFC 9110, section 5.6.7; RFC 5322, section 4.3; strptime of Python 3.11.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo

FORMATS_MAX = 4
FORMAT_CHARACTERS_MAX = 64
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NAMED_OFFSETS_H = {"UTC": 0, "GMT": 0, "UT": 0, "Z": 0} | {  # the only names that a standard defines
    "EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7,
}  # fmt: skip
_ZONE = r"(?P<zone>[A-Za-z]{1,5}|[+-]\d\d:?(?:\d\d)?)"
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)})[a-z]*"
_CLOCK = r"(?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?)?"
_WEEKDAY = r"(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*,? )?"
_FLAGS = re.ASCII | re.IGNORECASE
_FORMS = (
    re.compile(
        rf"(?P<year>\d{{4}})(?P<mark>[./])(?P<digits>\d\d)(?P=mark)(?P<day>\d\d)[ T]{_CLOCK}(?: ?{_ZONE})?", _FLAGS
    ),
    re.compile(rf"(?P<year>\d{{4}})-(?P<digits>\d\d)-(?P<day>\d\d)[ T]{_CLOCK} {_ZONE}", _FLAGS),
    re.compile(rf"{_WEEKDAY}(?P<day>\d\d?)[ -]{_MONTH}[ -](?P<year>\d{{4}}) {_CLOCK}(?: {_ZONE})?", _FLAGS),
    re.compile(rf"{_WEEKDAY}{_MONTH} {{1,2}}(?P<day>\d\d?) {_CLOCK}(?: {_ZONE})? (?P<year>\d{{4}})", _FLAGS),
)
_ISO = re.compile(r"[\dW-]{7,10}[T ]\d\d.*", re.ASCII)
_SAMPLE = datetime(2018, 2, 15, 13, 45, 50, tzinfo=UTC)


class FormatError(ValueError):
    """A `time_format` cannot be used; the message says why, as a predicate."""


def of_iso(text: str, zone: tzinfo, received_ms: int) -> datetime | None:
    """Return the moment of an ISO 8601 text with date and time, or None; raises ValueError and OverflowError too."""
    text = text.upper()
    return with_zone(datetime.fromisoformat(text), zone, received_ms) if _ISO.fullmatch(text) else None


def of_common_form(text: str, zone: tzinfo, received_ms: int) -> datetime | None:
    """Return the moment of a text in one of the forms of the table, or None; raises ValueError and OverflowError."""
    for form in _FORMS:
        found = form.fullmatch(text)
        if found is not None:
            return _of_form(found.groupdict(), zone, received_ms)
    return None


def of_format(text: str, formats: tuple[str, ...], zone: tzinfo, received_ms: int) -> datetime | None:
    """Return the moment of a text in the first of the formats that fits, or None; raises OverflowError."""
    for time_format in formats:
        try:
            return with_zone(datetime.strptime(text, time_format), zone, received_ms)
        except ValueError:
            continue
    return None


def with_zone(moment: datetime, zone: tzinfo, received_ms: int) -> datetime:
    """Return a moment with its zone; a local time that `zone` has twice or never is resolved.

    | local time | is |
    |---|---|
    | twice, as the clock goes back | the one nearer to the time of receipt |
    | never, as the clock goes forward | as if the clock had not: 02:30 is what it then calls 03:30 |
    """
    if moment.tzinfo is not None:
        return moment
    first, second = moment.replace(tzinfo=zone, fold=0), moment.replace(tzinfo=zone, fold=1)
    before, after = first.utcoffset(), second.utcoffset()
    if before is None or after is None or before <= after:
        return first
    received = timedelta(milliseconds=received_ms)
    return min(first, second, key=lambda either: abs(either.astimezone(UTC) - EPOCH - received))


def check_format(time_format: str) -> None:
    """Raise FormatError unless the format reads a date with a time of day, each the same as it was written."""
    if len(time_format) > FORMAT_CHARACTERS_MAX:
        raise FormatError(f"is longer than {FORMAT_CHARACTERS_MAX} characters: write a shorter one")
    if "%Z" in time_format.replace("%%", ""):
        raise FormatError("has %Z, which Python reads without its offset: use %z, or set time_zone")
    try:
        read = datetime.strptime(_SAMPLE.strftime(time_format), time_format)
    except (ValueError, re.error, KeyError, IndexError) as error:
        raise FormatError(f"is no format of strptime ({error}): as an example, write %d/%m/%Y %H:%M:%S") from None
    if read.date() != _SAMPLE.date():
        raise FormatError("names no whole date: add the missing one of %Y, %m and %d")
    if read.hour != _SAMPLE.hour:
        raise FormatError("names no hour of the day: add %H, or %I with %p")


def _of_form(parts: dict[str, str | None], zone: tzinfo, received_ms: int) -> datetime:
    month = parts.get("month")
    naive = datetime(
        int(parts["year"] or 0),
        int(parts["digits"] or 0) if month is None else _MONTHS.index(month[:3].lower()) + 1,
        int(parts["day"] or 0),
        int(parts["hour"] or 0),
        int(parts["minute"] or 0),
        int(parts["second"] or 0),
        int((parts["fraction"] or "0").ljust(6, "0")[:6]),
    )
    name = parts["zone"]
    if name is None:
        return with_zone(naive, zone, received_ms)
    offset = _offset(name)
    return naive.replace(tzinfo=offset) if offset is not None else _by_name(naive, name, zone)


def _offset(name: str) -> tzinfo | None:
    if name[0] in "+-":
        digits = name[1:].replace(":", "").ljust(4, "0")
        minutes = int(digits[:2]) * 60 + int(digits[2:])
        return timezone(timedelta(minutes=-minutes if name[0] == "-" else minutes))
    hours = _NAMED_OFFSETS_H.get(name.upper())
    return None if hours is None else timezone(timedelta(hours=hours))


def _by_name(naive: datetime, name: str, zone: tzinfo) -> datetime:
    """Return the moment whose zone calls itself `name` then, as CET in Europe/Berlin; raises ValueError."""
    for fold in (0, 1):
        moment = naive.replace(tzinfo=zone, fold=fold)
        if moment.tzname() == name.upper():
            return moment
    raise ValueError(f"{name} is no zone that is known here")
