"""From MQTT topics to Kafka records: MQTT's matching rules, templates, and what is refused."""

from __future__ import annotations

import json

import pytest

from gateway.records import Record
from gateway.routing import (
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
    record = route_message([READINGS], "sites/a/devices/device-07/readings", payload, 1764000000555)
    assert record == Record(
        source="mqtt",
        topic="readings",
        key=b"device-07",
        value=payload,
        headers=(
            ("mqtt.topic", b"sites/a/devices/device-07/readings"),
            ("source", b"mqtt"),
            ("received_ms", b"1764000000555"),
            ("site", b"a"),
        ),
        timestamp_ms=1764000000000,
        received_ms=1764000000555,
        origin="mqtt:sites/a/devices/device-07/readings",
    )
    assert READINGS.topic_filter == "sites/+/devices/+/readings"


def test_without_timestamp_field_any_payload_is_taken_at_the_time_of_receipt() -> None:
    record = route_message([parse_route("raw/#", "raw")], "raw/x", b"\xff\x00", 7)
    assert isinstance(record, Record)
    assert (record.timestamp_ms, record.key, record.value) == (7, b"raw/x", b"\xff\x00")


def test_the_first_route_that_matches_takes_the_message() -> None:
    routes = [parse_route("a/b", "first"), parse_route("a/#", "second")]
    assert [_topic(routes, topic) for topic in ("a/b", "a/c")] == ["first", "second"]


def _topic(routes: list[Route], topic: str) -> str:
    record = route_message(routes, topic, b"", 0)
    assert isinstance(record, Record)
    return record.topic


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"not json",
        b"[]",
        b"{}",
        b'{"time_ms": "1"}',
        b'{"time_ms": true}',
        b'{"time_ms": 1.5}',
        b'{"time_ms": -1}',
        b'{"time_ms": 253402300800000}',
        b"[" * 100_000,
        b'{"time_ms": ' + b"9" * 10_000 + b"}",
    ],
)
def test_a_payload_without_the_time_is_refused_by_name_not_by_exception(payload: bytes) -> None:
    assert isinstance(route_message([READINGS], "sites/a/devices/b/readings", payload, 0), Rejection)


def test_topics_no_route_takes_and_empty_captures_are_refused() -> None:
    assert route_message([READINGS], "other", b"", 0) == Rejection("no route matches the topic")
    refused = route_message([READINGS], "sites/a/devices//readings", b'{"time_ms": 1}', 0)
    assert refused == Rejection("the topic's level device is empty")


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
