"""What the gateway makes of any payload and any time in it.

Invariants:
- no payload and no MQTT topic raises, and each is kept byte for byte: in a record or in a dead letter;
- a time is read to the millisecond in whatever unit it is written, else the time of receipt is taken, never 1970;
- a unit that is set believes no other;
- a local time is read by the zone of its route, also where the zone has it twice, as far as the time of receipt tells;
- no text, format or nesting raises, and none takes long.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gateway.records.dead_letters import dead_letter, shorten, whole_bytes
from gateway.records.records import Record
from gateway.routing.routes import Message, parse_route, route_message
from gateway.times.timestamps import ABSENT, TIME_UNITS, TimeRule, device_time, why_no_time

RECEIVED_MS = 1_764_000_000_555
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no failure
FIRST_MS, END_MS = 10**12, 10**13
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=70),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
PAYLOADS = (
    st.binary(max_size=200)
    | st.dictionaries(st.sampled_from(["t", "value"]), JSON).map(lambda document: json.dumps(document).encode())
    | st.tuples(st.sampled_from([b"[", b'{"t":', b"-", b"9"]), st.integers(1, 40_000)).map(
        lambda made: made[0] * made[1]
    )
)
TOPICS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=40)
ROUTES = [
    parse_route("a/{x}", "t", key="{x}", headers={"h": "{x} of {mqtt_topic}"}, timestamp_field="t", time_unit=unit)
    for unit in TIME_UNITS
]


@UNHURRIED
@given(PAYLOADS, TOPICS | TOPICS.map("a/{}".format), st.sampled_from(ROUTES))
@example(b'{"t": "' + b"9" * 5_000 + b'"}', "a/b", ROUTES[0])
@example(b'{"t": 1e309}', "a/{x!r}", ROUTES[0])
@example(b'{"t": "0001-01-01T00:00+23:59"}', "a/b", ROUTES[0])
def test_every_payload_is_kept_whole_whatever_it_is(payload: bytes, topic: str, route: Any) -> None:
    routed = route_message([route], Message(topic, payload, RECEIVED_MS))
    record = routed if isinstance(routed, Record) else dead_letter(routed.record, "d", routed.reason, routed.detail)
    assert record.value == payload
    headers = dict(record.headers)
    assert headers["mqtt.topic"] == topic.encode()
    assert record.timestamp_ms == RECEIVED_MS or FIRST_MS <= record.timestamp_ms <= END_MS
    if isinstance(routed, Record):
        assert headers["time_unit"] == record.time_unit.encode()
        assert (record.time_unit == "received") <= (record.timestamp_ms == RECEIVED_MS)


@UNHURRIED
@given(JSON, st.sampled_from(TIME_UNITS))
def test_a_time_is_in_the_span_and_in_the_unit_that_was_asked_for(value: Any, unit: str) -> None:
    found = device_time(value, unit)
    if found is not None:
        assert FIRST_MS <= found[0] <= END_MS
        assert found[1] in TIME_UNITS[1:]
        assert unit in ("auto", found[1])


@UNHURRIED
@given(st.integers(FIRST_MS, END_MS - 1), st.integers(-14 * 60, 14 * 60), st.booleans())
def test_an_instant_is_the_same_in_every_unit(instant_ms: int, offset_min: int, as_text: bool) -> None:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=instant_ms)
    elsewhere = moment.astimezone(timezone(timedelta(minutes=offset_min)))
    forms: list[tuple[object, str, int]] = [
        (instant_ms // 1_000, "s", instant_ms // 1_000 * 1_000),
        (instant_ms / 1_000, "s", instant_ms),
        (instant_ms, "ms", instant_ms),
        (instant_ms + 0.25, "ms", instant_ms),
        (instant_ms * 1_000 + 999, "us", instant_ms),
        (instant_ms * 1_000_000 + 999_999, "ns", instant_ms),
    ]
    if as_text:
        forms = [(str(value), unit, expected) for value, unit, expected in forms]
        forms += [
            (moment.isoformat().replace("+00:00", "Z"), "iso", instant_ms),
            (elsewhere.isoformat(), "iso", instant_ms),
        ]
        forms += [(moment.replace(tzinfo=None).isoformat(" "), "iso", instant_ms)]
    for value, unit, expected in forms:
        assert device_time(value, "auto") == device_time(value, unit) == (expected, unit)
        assert [each for each in TIME_UNITS[1:] if device_time(value, each)] == [unit]


ZONES = [
    UTC,
    *(ZoneInfo(name) for name in ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata")),
]
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
DAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]


def moment_of(instant_ms: int, zone: tzinfo = UTC) -> datetime:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=instant_ms)).astimezone(zone)


@UNHURRIED
@given(st.integers(FIRST_MS, END_MS - 1), st.sampled_from(ZONES), st.integers(-600_000, 600_000))
@example(1_540_688_400_000, ZONES[1], 0)  # 02:00 in Berlin for the second time
@example(1_540_684_800_000, ZONES[1], 0)  # and for the first
def test_a_local_time_is_read_by_its_zone(instant_ms: int, zone: tzinfo, delay_ms: int) -> None:
    rule = TimeRule("t", zone=zone, formats=("%d/%m/%Y %H:%M:%S.%f",))
    local = moment_of(instant_ms, zone)
    whole_ms = instant_ms // 1000 * 1000
    received_ms = instant_ms + delay_ms  # less than half of what the clock goes back
    day, month = local.day, MONTHS[local.month - 1]
    for text, unit, expected in [
        (local.replace(tzinfo=None).isoformat(), "iso", instant_ms),
        (f"{local:%Y.%m.%d %H:%M:%S.%f}", "text", instant_ms),
        (f"{local:%Y/%m/%d %H:%M:%S}", "text", whole_ms),
        (f"{local:%d/%m/%Y %H:%M:%S.%f}", "text", instant_ms),
        (f"{DAYS[local.weekday()]}, {day:02} {month} {local:%Y %H:%M:%S}", "text", whole_ms),
        (f"{DAYS[local.weekday()]} {month} {day:>2} {local:%H:%M:%S %Y}", "text", whole_ms),
    ]:
        assert rule.read(text, received_ms) == (expected, unit), text


@UNHURRIED
@given(st.integers(FIRST_MS, END_MS - 1), st.integers(-14 * 60, 14 * 60), st.sampled_from(ZONES))
def test_a_named_offset_wins_over_the_zone_of_the_route(instant_ms: int, offset_min: int, zone: tzinfo) -> None:
    rule = TimeRule("t", zone=zone)
    whole_ms = instant_ms // 1000 * 1000
    utc = moment_of(whole_ms)
    there = moment_of(whole_ms, timezone(timedelta(minutes=offset_min)))
    rfc = f"{DAYS[there.weekday()]}, {there.day} {MONTHS[there.month - 1]} {there:%Y %H:%M:%S %z}"
    assert rule.read(f"{there:%Y-%m-%d %H:%M:%S %z}") == (whole_ms, "iso")  # as Python reads it
    texts = [rfc, rfc.lower(), f"{there:%Y.%m.%d %H:%M:%S %z}"]
    texts += [f"{utc:%Y-%m-%d %H:%M:%S} {name}" for name in ("UTC", "GMT", "utc", "Ut")]
    texts += [f"{DAYS[utc.weekday()]}, {utc.day:02} {MONTHS[utc.month - 1]} {utc:%Y %H:%M:%S} GMT"]
    for text in texts:
        assert rule.read(text) == (whole_ms, "text"), text
        assert TimeRule("t", "iso").read(text) is None


@UNHURRIED
@given(
    st.text(max_size=70) | st.from_regex(r"[0-9]{1,4}[-./ ][0-9A-Za-z]{1,3}[-./ ][0-9]{1,4}[ T][0-9:. ]{1,12}.{0,8}"),
    st.sampled_from(ZONES),
    st.sampled_from([(), ("%d/%m/%Y %H:%M",), ("%d.%m.%y %I:%M %p", "%c")]),
    st.integers(0, END_MS),
)
@example("9999.12.31 23:59:59 -23:59", UTC, (), 0)
@example("2018.02.15 24:00:00", UTC, (), 0)
@example("31 Feb 2018 01:00 GMT", UTC, (), 0)
@example("2018-02-15 01:00:50 +99:99", UTC, (), 0)
@example("2018-02-15 01:00:50 CET", UTC, (), 0)
def test_no_text_raises(text: str, zone: tzinfo, formats: tuple[str, ...], received_ms: int) -> None:
    found = TimeRule("t", zone=zone, formats=formats).read(text, received_ms)
    assert found is None or (FIRST_MS <= found[0] <= END_MS and found[1] in TIME_UNITS)
    assert (why_no_time(text) == "") <= (found is not None)


def test_what_the_clock_goes_back_and_forward_over() -> None:
    berlin = TimeRule("t", zone=ZoneInfo("Europe/Berlin"))
    back, summer, winter = "2018-10-28 02:30:00", 1_540_686_600_000, 1_540_690_200_000
    assert berlin.read(back, summer + 5_000) == (summer, "iso")
    assert berlin.read(back, winter + 5_000) == (winter, "iso")
    assert berlin.read(f"{back} CET", summer) == (winter, "text")
    assert berlin.read(f"{back} CEST", winter) == (summer, "text")
    assert berlin.read("2018-03-25 02:30:00") == berlin.read("2018-03-25 03:30:00") == (1_521_941_400_000, "iso")
    assert berlin.read("2018-02-15 01:00:50 CEST") is None  # no summer time then
    tasmota = TimeRule("Time", zone=ZoneInfo("Europe/Berlin"))
    assert tasmota.read(tasmota.value({"Time": "2018-02-15T01:00:50"})) == (1_518_652_850_000, "iso")


@UNHURRIED
@given(JSON, st.sampled_from(["t", "a.b", "a.0", "a.0.t", "a.b.c.d.e"]))
def test_no_nesting_raises(document: Any, field: str) -> None:
    rule = TimeRule(field)
    for whole in ({"a": document}, {"a": {"b": document}}, {"a": [document]}, {field: document}):
        value = rule.value(whole)
        assert value is ABSENT or rule.read(value) is None or isinstance(rule.read(value), tuple)
    assert rule.value({field: document, "a": {"b": 1}}) is document  # the whole name comes first


@UNHURRIED
@given(st.integers(max_value=10**9 - 1) | st.integers(10**10, 10**12 - 1) | st.integers(10**13, 10**15 - 1))
def test_a_number_between_the_ranges_is_no_time(value: int) -> None:
    assert device_time(value, "auto") is None
    assert device_time(float(value), "auto") is None


@UNHURRIED
@given(st.binary(max_size=3_000), st.integers(0, 70_000), TOPICS)
def test_cutting_a_dead_letter_ends_and_keeps_count(beginning: bytes, more: int, topic: str) -> None:
    payload = beginning + b"x" * more
    routed = Record("mqtt", "t", b"k", payload, (("mqtt.topic", topic.encode()),), RECEIVED_MS, RECEIVED_MS, "o", "r")
    letter: Record | None = dead_letter(routed, "d", "not_json", "x")
    while letter is not None:
        assert payload.startswith(letter.value)
        assert whole_bytes(letter) == len(payload)
        shorter = shorten(letter)
        assert shorter is None or len(shorter.value) < len(letter.value)
        letter = shorter
