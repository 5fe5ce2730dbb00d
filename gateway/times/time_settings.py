"""Check a route's keys for times: timestamp_field, time_unit, time_zone, time_format."""

from __future__ import annotations

import re
import zoneinfo
from datetime import UTC, timedelta, timezone, tzinfo
from typing import NamedTuple

from drupelet.command.config_check import Table
from gateway.times.time_texts import FORMATS_MAX, FormatError, check_format

_OFFSET = re.compile(r"([+-])(\d\d):(\d\d)", re.ASCII)
_EXAMPLE = 'such as "Europe/Berlin" or "+01:00"'


class TimeSettings(NamedTuple):
    """A route's settings for times that are text."""

    zone: tzinfo = UTC
    formats: tuple[str, ...] = ()


def time_settings(table: Table, timestamp_field: str | None, time_unit: str) -> TimeSettings:
    """Check the keys of a route's table; raises ConfigurationError."""
    settings = TimeSettings(_zone(table), _formats(table))
    for key in ("time_unit", "time_zone", "time_format"):
        if timestamp_field is None and key in table.values:
            raise table.error(key, "needs timestamp_field, the name of the JSON field that holds the time: add it.")
    if timestamp_field is not None and "" in timestamp_field.split("."):
        raise table.error(
            "timestamp_field", f'is "{timestamp_field}", a path with an empty name: write one name between two dots.'
        )
    if "time_zone" in table.values and time_unit not in ("auto", "iso", "text"):
        raise table.error("time_zone", f'has no effect with time_unit "{time_unit}", which is UTC: leave one out.')
    if "time_format" in table.values and time_unit not in ("auto", "text"):
        raise table.error("time_format", f'has no effect with time_unit "{time_unit}": set "text", or leave one out.')
    return settings


def _zone(table: Table) -> tzinfo:
    if not table.has("time_zone"):
        return UTC
    name = table.text("time_zone")
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        minutes = int(offset[2]) * 60 + int(offset[3])
        if minutes >= 24 * 60 or int(offset[3]) >= 60:
            raise table.error("time_zone", f'is "{name}", no offset from UTC: write -23:59 to +23:59.')
        return timezone(timedelta(minutes=-minutes if offset[1] == "-" else minutes))
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):  # OSError: a directory of the database, as Europe
        pass
    if not zoneinfo.available_timezones():
        raise table.error(
            "time_zone", f'is "{name}", and this host has no time zone database: install the package tzdata.'
        )
    raise table.error("time_zone", f'is "{name}", no zone of the tz database: write one, {_EXAMPLE}.')


def _formats(table: Table) -> tuple[str, ...]:
    value = table.values.get("time_format", [])
    formats = [value] if isinstance(value, str) else value
    if not isinstance(formats, list) or not all(isinstance(text, str) and text for text in formats):
        raise table.error("time_format", f"is {value!r}: write a format of strptime, or a list of them.")
    if len(formats) > FORMATS_MAX:
        raise table.error("time_format", f"has {len(formats)} formats: {FORMATS_MAX} are tried at most.")
    for text in formats:
        try:
            check_format(text)
        except FormatError as error:
            raise table.error("time_format", f'is "{text}", which {error}.') from None
    return tuple(formats)
