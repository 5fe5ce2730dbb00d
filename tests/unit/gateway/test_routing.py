"""From MQTT topics to Kafka records: MQTT's matching rules, templates, and what is refused."""

from __future__ import annotations

import json

import pytest

from gateway.records.records import Record
from gateway.routing.routes import (
    Message,
    Rejection,
    Route,
    RouteError,
    covers,
    match,
    overlaps,
    parse_route,
    route_message,
    subscriptions,
)

RECEIVED_MS = 1_764_000_000_555
READINGS = parse_route(
    "sites/{site}/devices/{device}/readings",
    "readings",
    key="{device}",
    headers={"site": "{site}"},
    timestamp_field="time_ms",
)


@pytest.mark.parametrize(
    ("pattern", "topic", "matches"),
    [
        ("a/b", "a/b", True),
        ("a/b", "a/b/c", False),
        ("a/b", "a", False),
        ("a/+", "a/b", True),
        ("a/+", "a/", True),
        ("a/+", "a", False),
        ("+/+", "/finance", True),
        ("+", "/finance", False),
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("a/#", "ab", False),
        ("#", "a/b", True),
        ("#", "$SYS/broker/uptime", False),
        ("+/broker/uptime", "$SYS/broker/uptime", False),
        ("$SYS/#", "$SYS/broker/uptime", True),
    ],
)
def test_matching_follows_mqtt(pattern: str, topic: str, matches: bool) -> None:
    assert (match(pattern.split("/"), topic) is not None) is matches


def test_captures_fill_key_headers_and_filter() -> None:
    payload = json.dumps({"device": "device-07", "time_ms": 1764000000000}).encode()
    record = route_message([READINGS], Message("sites/a/devices/device-07/readings", payload, 1764000000555))
    assert record == Record(
        source="mqtt",
        topic="readings",
        key=b"device-07",
        value=payload,
        headers=(
            ("mqtt.topic", b"sites/a/devices/device-07/readings"),
            ("source", b"mqtt"),
            ("received_ms", b"1764000000555"),
            ("time_unit", b"ms"),
            ("site", b"a"),
        ),
        timestamp_ms=1764000000000,
        received_ms=1764000000555,
        origin="mqtt:sites/a/devices/device-07/readings",
        route="sites/{site}/devices/{device}/readings",
        time_unit="ms",
    )
    assert READINGS.topic_filter == "sites/+/devices/+/readings"


def test_without_timestamp_field_any_payload_is_taken_at_the_time_of_receipt() -> None:
    record = route_message([parse_route("raw/#", "raw")], Message("raw/x", b"\xff\x00", 7))
    assert isinstance(record, Record)
    assert (record.timestamp_ms, record.key, record.value) == (7, b"raw/x", b"\xff\x00")
    assert "time_unit" not in dict(record.headers)  # nobody looked for a time in it


def test_the_first_route_that_matches_takes_the_message() -> None:
    routes = [parse_route("a/b", "first"), parse_route("a/#", "second")]
    assert [_topic(routes, topic) for topic in ("a/b", "a/c")] == ["first", "second"]


def _topic(routes: list[Route], topic: str) -> str:
    record = route_message(routes, Message(topic, b"", 0))
    assert isinstance(record, Record)
    return record.topic


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "not_json"),
        (b"not json", "not_json"),
        (b'{"time_ms": 1764000000000', "not_json"),
        (b'{"device": "\xff"}', "not_json"),
        ('{"value": 1}'.encode("utf-16"), "not_json"),
        (b"[]", "no_reading"),
        (b'"21.5"', "no_reading"),
        (b"true", "no_reading"),
        (b"null", "no_reading"),
        (b"NaN", "no_reading"),
        (b"-Infinity", "no_reading"),
        (b"9" * 10_000, "no_reading"),
        (b"[" * 100_000, "json_too_deep"),
        (b'{"a":' * 100_000, "json_too_deep"),
    ],
)
def test_a_payload_that_is_no_reading_is_refused_whole_with_the_reason(payload: bytes, reason: str) -> None:
    topic = "sites/a/devices/b/readings"
    refused = route_message([READINGS], Message(topic, payload, RECEIVED_MS))
    assert isinstance(refused, Rejection)
    assert refused.reason == reason
    assert refused.detail
    record = refused.record
    assert (record.value, record.topic, record.route) == (payload, "readings", READINGS.pattern)
    assert dict(record.headers) == {"mqtt.topic": topic.encode(), "source": b"mqtt", "received_ms": b"1764000000555"}


@pytest.mark.parametrize(
    "payload",
    [
        b"20.1",
        b" -3 ",
        b"{}",
        b'{"value": 21.5}',
        b'{"time_ms": null}',
        b'{"time_ms": true}',
        b'{"time_ms": -1}',
        b'{"time_ms": 0}',
        b'{"time_ms": 86400}',
        b'{"time_ms": NaN}',
        b'{"time_ms": 1e999}',
        b'{"time_ms": "yesterday"}',
        b'{"time_ms": [1764000000]}',
        b'{"time_ms": {"s": 1764000000}}',
        b'{"time_ms": 253402300800000}',
        b'{"time_ms": ' + b"9" * 10_000 + b"}",
        b'{"time_ms": 1764000000, "time_ms": null}',
        b'\xef\xbb\xbf{"value": 1}',
    ],
)
def test_a_reading_without_a_usable_time_has_the_time_of_receipt(payload: bytes) -> None:
    record = route_message([READINGS], Message("sites/a/devices/b/readings", payload, RECEIVED_MS))
    assert isinstance(record, Record)
    assert (record.value, record.timestamp_ms, record.time_unit) == (payload, RECEIVED_MS, "received")
    assert dict(record.headers)["time_unit"] == b"received"


@pytest.mark.parametrize(
    ("payload", "unit", "time_unit"),
    [
        (b'{"t": 1764000000}', "auto", "s"),
        (b'{"t": 1764000000.0004}', "auto", "s"),
        (b'{"t": 1764000000000.4}', "auto", "ms"),
        (b'{"t": "1764000000"}', "auto", "s"),
        (b'{"t": "2025-11-24T16:00:00Z"}', "auto", "iso"),
        (b'{"t": "2025-11-24T17:00:00+01:00"}', "iso", "iso"),
        (b'{"t": 1764000000000}', "s", None),
        (b'{"t": "2025-11-24T16:00:00Z"}', "ms", None),
        (b'{"t": 1764000000}', "iso", None),
    ],
)
def test_the_unit_is_told_or_given(payload: bytes, unit: str, time_unit: str | None) -> None:
    route = parse_route("a", "t", timestamp_field="t", time_unit=unit)
    record = route_message([route], Message("a", payload, RECEIVED_MS))
    assert isinstance(record, Record)
    expected = (RECEIVED_MS, "received") if time_unit is None else (1764000000000, time_unit)
    assert (record.timestamp_ms, record.time_unit) == expected


def test_topics_no_route_takes_and_empty_captures_are_refused() -> None:
    refused = route_message([READINGS], Message("other", b"x", RECEIVED_MS))
    assert isinstance(refused, Rejection)
    assert (refused.reason, refused.record.topic, refused.record.route) == ("no_route", "", "")
    refused = route_message([READINGS], Message("sites/a/devices//readings", b'{"time_ms": 1}', RECEIVED_MS))
    assert isinstance(refused, Rejection)
    assert (refused.reason, refused.detail) == ("empty_topic_level", "the topic's level device is empty")


@pytest.mark.parametrize(
    ("pattern", "topic", "key", "says"),
    [
        ("", "t", "k", "1 to 65535"),
        ("a/#/b", "t", "k", "last level"),
        ("a/b+", "t", "k", "whole level"),
        ("a/{B}", "t", "k", "whole level"),
        ("{x}/{x}", "t", "k", "own name"),
        ("a", "bad topic", "k", "not a Kafka topic"),
        ("a", "..", "k", "not a Kafka topic"),
        ("a/{x}", "t", "{y}", "not a capture"),
        ("a/{x}", "t", "{x!r}", "not a capture"),
        ("a/{x}", "t", "{x.y}", "not a capture"),
        ("a/{x}", "t", "{x", "not a template"),
    ],
)
def test_unusable_routes_say_why(pattern: str, topic: str, key: str, says: str) -> None:
    with pytest.raises(RouteError, match=says):
        parse_route(pattern, topic, key=key)


@pytest.mark.parametrize(
    ("pattern", "instead"),
    [
        ("$share/g/s/+/r", "s/+/r"),
        ("$share/g/sites/{site}/#", "sites/{site}/#"),
        ("$share/g", "#"),
        ("$queue/s/+/r", "s/+/r"),
        ("$exclusive/s/r", "s/r"),
    ],
)
def test_a_filter_whose_beginning_is_in_no_topic_is_refused(pattern: str, instead: str) -> None:
    with pytest.raises(RouteError) as error:
        parse_route(pattern, "t")
    assert str(error.value).endswith(f'so it matches no message: write "{instead}"')


def test_a_route_may_take_a_brokers_own_topics() -> None:
    route = parse_route("$SYS/broker/#", "t")
    routed = route_message([route], Message("$SYS/broker/uptime", b"1", 7))
    assert isinstance(routed, Record)
    assert routed.topic == "t"


@pytest.mark.parametrize(
    ("one", "other", "covering", "overlapping"),
    [
        ("a/b", "a/b", True, True),
        ("a/+", "a/b", True, True),
        ("a/b", "a/+", False, True),
        ("a/#", "a", True, True),
        ("a/#", "a/+/c", True, True),
        ("a/+", "a/#", False, True),
        ("a/+", "+/b", False, True),
        ("a/b", "a/c", False, False),
        ("a/b", "a/b/c", False, False),
        ("#", "$SYS/x", False, True),
    ],
)
def test_covering_and_overlapping_filters(one: str, other: str, covering: bool, overlapping: bool) -> None:
    assert covers(one.split("/"), other.split("/")) is covering
    assert overlaps(one.split("/"), other.split("/")) is overlapping


def test_only_the_widest_filters_are_subscribed_to() -> None:
    assert subscriptions([parse_route("a/{x}", "t"), parse_route("a/#", "t"), parse_route("b", "t")]) == ["a/#", "b"]
    with pytest.raises(RouteError, match="both match"):
        subscriptions([parse_route("a/+", "t"), parse_route("+/b", "t")])


@pytest.mark.parametrize(
    ("payload", "name"),
    [
        (b'{"ts": 1764000000, "value": 1}', "ts"),
        (b'{"value": 1, "Timestamp": "2025-11-24T16:00:00Z"}', "Timestamp"),
        (b'{"@timestamp": 1764000000000}', "@timestamp"),
        (b'{"measured_time": 1764000000000}', "measured_time"),
        (b'{"time_s": 1764000000, "at": 1764000000}', "time_s"),
        (b'{"value": 1764000000}', ""),
        (b'{"ts": 86400, "uptime": 5}', ""),
        (b'{"time_ms": null, "ts": 1764000000}', ""),
        (b'{"time_ms": 1764000000000, "ts": 1764000000}', ""),
        (b"21.5", ""),
    ],
)
def test_a_time_under_another_name_is_noticed(payload: bytes, name: str) -> None:
    record = route_message([READINGS], Message("sites/a/devices/b/readings", payload, RECEIVED_MS))
    assert isinstance(record, Record)
    assert record.overlooked == name


def test_a_route_that_looks_for_no_time_overlooks_none() -> None:
    record = route_message([parse_route("a", "t")], Message("a", b'{"ts": 1764000000}', RECEIVED_MS))
    assert isinstance(record, Record)
    assert record.overlooked == ""
