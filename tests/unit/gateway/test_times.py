"""How a route's times are set, and what is said of a time that it does not read.

Invariants: a key that cannot work is one sentence at `check`; each kind of unread time is said once for each route.
"""

from __future__ import annotations

import json
import time
import zoneinfo
from pathlib import Path
from typing import Any

import pytest

from drupelet.errors import ConfigurationError
from gateway.cli import describe
from gateway.config import GatewayConfig, parse_config
from gateway.records.records import NO_TIME, Record
from gateway.routing.route_status import MISSING_MIN, OverlookedTimes
from gateway.routing.routes import Message, route_message
from gateway.times.timestamps import TimeRule

HEAD = 'state_dir = "/s"\n[kafka]\nbootstrap_servers = "h:1"\n[mqtt]\n[[mqtt.routes]]\npattern = "a"\ntopic = "t"\n'
RECEIVED_MS = 1_764_000_000_000


def parsed(keys: str) -> GatewayConfig:
    return parse_config(Path("g.toml"), HEAD + keys)


def routed(keys: str, reading: Any) -> Record:
    mqtt = parsed(keys).mqtt
    assert mqtt is not None
    record = route_message(mqtt.routes, Message("a", json.dumps(reading).encode(), RECEIVED_MS))
    assert isinstance(record, Record)
    return record


@pytest.mark.parametrize(
    ("keys", "reading", "timestamp_ms", "unit"),
    [
        ('timestamp_field = "params.ts"', {"params": {"ts": 1_518_652_850}}, 1_518_652_850_000, "s"),
        ('timestamp_field = "params.ts"', {"params.ts": 1_518_652_850, "params": {"ts": 1}}, 1_518_652_850_000, "s"),
        ('timestamp_field = "p.0.ts"', {"p": [{"ts": 1_518_652_850}]}, 1_518_652_850_000, "s"),
        (
            'timestamp_field = "Time"\ntime_zone = "Europe/Berlin"',
            {"Time": "2018-02-15T01:00:50"},
            1_518_652_850_000,
            "iso",
        ),
        ('timestamp_field = "Time"\ntime_zone = "+01:00"', {"Time": "2018-02-15T01:00:50"}, 1_518_652_850_000, "iso"),
        ('timestamp_field = "t"', {"t": "2018.02.15 00:00:50"}, 1_518_652_850_000, "text"),
        ('timestamp_field = "t"', {"t": "2018-02-15 00:00:50 UTC"}, 1_518_652_850_000, "text"),
        ('timestamp_field = "t"', {"t": "Thu, 15 Feb 2018 00:00:50 GMT"}, 1_518_652_850_000, "text"),
        (
            'timestamp_field = "t"\ntime_format = "%d/%m/%Y %H:%M:%S"',
            {"t": "15/02/2018 00:00:50"},
            1_518_652_850_000,
            "text",
        ),
        (
            'timestamp_field = "t"\ntime_format = ["%d.%m.%y %H:%M", "%y%m%d%H%M"]',
            {"t": "1802150100"},
            1_518_656_400_000,
            "text",
        ),
        ('timestamp_field = "t"', {"t": "15/02/2018 00:00:50"}, RECEIVED_MS, "received"),
        ('timestamp_field = "t"\ntime_unit = "text"', {"t": "2018-02-15T00:00:50"}, RECEIVED_MS, "received"),
    ],
)
def test_a_time_is_read_as_its_route_says(keys: str, reading: Any, timestamp_ms: int, unit: str) -> None:
    record = routed(keys, reading)
    assert (record.timestamp_ms, record.time_unit) == (timestamp_ms, unit)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ('time_zone = "Europe/Berlin"', "time_zone needs timestamp_field"),
        ('time_format = "%d"', "is no format|names no whole date|needs timestamp_field"),
        ('timestamp_field = "a..b"', 'timestamp_field is "a..b", a path with an empty name'),
        (
            'timestamp_field = "t"\ntime_zone = "Europe/Berlln"',
            'time_zone is "Europe/Berlln", no zone of the tz database',
        ),
        ('timestamp_field = "t"\ntime_zone = "../../etc/passwd"', "no zone of the tz database"),
        ('timestamp_field = "t"\ntime_zone = "Europe"', "no zone of the tz database"),
        ('timestamp_field = "t"\ntime_zone = "+25:00"', "no offset from UTC"),
        ('timestamp_field = "t"\ntime_zone = "UTC"\ntime_unit = "ms"', 'has no effect with time_unit "ms"'),
        ('timestamp_field = "t"\ntime_format = "%c"\ntime_unit = "iso"', 'has no effect with time_unit "iso"'),
        ('timestamp_field = "t"\ntime_format = "%d/%m/%Y"', "names no hour of the day"),
        ('timestamp_field = "t"\ntime_format = "%H:%M"', "names no whole date"),
        ('timestamp_field = "t"\ntime_format = "%d/%m/%Y %I:%M"', "names no hour of the day"),
        ('timestamp_field = "t"\ntime_format = "%d/%m/%Y %H:%M %Z"', "has %Z"),
        ('timestamp_field = "t"\ntime_format = "%d/%m/%Y %H:%M %"', "is no format of strptime"),
        ('timestamp_field = "t"\ntime_format = "dd/mm/yyyy"', "is no format of strptime|names no whole date"),
        ('timestamp_field = "t"\ntime_format = []\ntime_unit = "s"', 'has no effect with time_unit "s"'),
        ('timestamp_field = "t"\ntime_format = [1]', "write a format of strptime"),
        ('timestamp_field = "t"\ntime_format = ["%c", "%c", "%c", "%c", "%c"]', "4 are tried at most"),
        (f'timestamp_field = "t"\ntime_format = "{"%c" * 40}"', "is longer than 64 characters"),
    ],
)
def test_a_key_that_cannot_work_is_a_sentence(keys: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        parsed(keys)


def test_a_host_without_a_time_zone_database_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_found(name: str) -> None:
        raise zoneinfo.ZoneInfoNotFoundError(name)

    monkeypatch.setattr(zoneinfo, "ZoneInfo", not_found)
    monkeypatch.setattr(zoneinfo, "available_timezones", set)
    with pytest.raises(ConfigurationError, match="no time zone database: install the package tzdata"):
        parsed('timestamp_field = "t"\ntime_zone = "Europe/Berlin"')


def test_check_says_how_times_are_read() -> None:
    config = parsed('timestamp_field = "t"\ntime_zone = "Europe/Berlin"\ntime_format = "%d/%m/%Y %H:%M"')
    assert 'time t (auto, local times in Europe/Berlin, or "%d/%m/%Y %H:%M")' in "\n".join(describe(config))


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("15/02/2018 01:00", "a text in no known form"),
        ("x" * 65, "a text of more than 64 characters"),
        (" ", "an empty text"),
        (12, "a number in none of the ranges"),
        (True, "true or false"),
        ({"s": 1}, "an object or a list"),
        (None, ""),
    ],
)
def test_a_time_that_is_there_and_no_time_is_said(value: object, why: str) -> None:
    record = routed('timestamp_field = "t"', {"t": value})
    assert record.unread.startswith(why)
    assert bool(record.unread) == bool(why)
    assert record.overlooked == ""


def test_a_time_in_an_object_of_the_reading_is_called_as_the_key_wants_it() -> None:
    record = routed('timestamp_field = "ts"', {"params": {"ts": 1_518_652_850}})
    assert (record.overlooked, record.unread) == ("params.ts", NO_TIME)


def test_each_kind_is_said_once_for_each_route_and_noted_while_it_goes_on() -> None:
    times = OverlookedTimes()
    assert times.unread("a", "t", "a text in no known form: set time_format", 0.0) == (
        "a: t is there, but no time, so the time of receipt counts; it is a text in no known form: set time_format"
    )
    assert times.unread("a", "t", "an empty text", 1.0) is None
    assert times.note_reading("a", "t", "ts", 1.0) is not None
    assert str(times.note(1.0)).count("a: ") == 2


def test_a_field_that_no_reading_has_is_said_unless_one_had_it() -> None:
    times = OverlookedTimes()
    said = [times.missing("a", "params.ts", 0.0) for _ in range(MISSING_MIN + 5)]
    assert [text for text in said if text] == [
        "a: no reading has had params.ts, so the time of receipt counts: is timestamp_field right?"
    ]
    times.read("a")
    assert times.note(0.0) is None
    assert [times.missing("a", "params.ts", 0.0) for _ in range(MISSING_MIN * 2)] == [None] * MISSING_MIN * 2


def test_no_payload_makes_reading_the_time_slow() -> None:
    names = {f"{'x' * 1000}{number}": {"y": number} for number in range(500)}
    rule = TimeRule("t", formats=("%d/%m/%Y %H:%M", "%d/%m/%Y %I:%M %p", "%A %d %B %Y %H:%M", "%d.%m.%Y %H:%M"))
    routed('timestamp_field = "t"', names)
    began_s = time.process_time()
    for _ in range(100):
        rule.read("1" * 64)
        rule.read("9999/99/99 " + "9" * 53)
        rule.read("." * 64)
    assert time.process_time() - began_s < 1.0
