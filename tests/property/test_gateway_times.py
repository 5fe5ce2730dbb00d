"""What the gateway makes of any payload and any time in it.

Invariants:
- no payload and no MQTT topic raises, and each is kept byte for byte: in a record or in a dead letter;
- a time is read to the millisecond in whatever unit it is written, else the time of receipt is taken, never 1970;
- a unit that is set believes no other.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gateway.dead_letters import dead_letter, shortened, whole_bytes
from gateway.records import Record
from gateway.routing import Message, parse_route, route_message
from gateway.timestamps import TIME_UNITS, device_time

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
        shorter = shortened(letter)
        assert shorter is None or len(shorter.value) < len(letter.value)
        letter = shorter
