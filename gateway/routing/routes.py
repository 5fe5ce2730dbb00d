"""PURE: turn an MQTT topic and payload into a Kafka record, or into the reason for a dead letter.

Topic filters follow MQTT 5, section 4.7: `+` is one level, `#` the rest and last, and neither matches a first level
that starts with `$`. A level `{name}` matches as `+` does and captures its text for the key and the headers:
`sites/+/devices/{device}/readings`. Does not contain: clients, clocks (the time of receipt is an argument), files.
"""

from __future__ import annotations

import json
import math
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from itertools import islice

from gateway.records import dead_letters
from gateway.records.records import NO_TIME, TIME_UNIT_HEADER, Record
from gateway.times.timestamps import ABSENT, RECEIVED, TimeRule, device_time, why_no_time

_CAPTURE = re.compile(r"\{([a-z][a-z0-9_]*)\}")
_TIME_NAME = re.compile(r"@?.*(time|stamp).*|(ts|t|date|at|epoch|utc)(_?(s|ms|us|ns))?", re.IGNORECASE)
FIELDS_SEARCHED_MAX = 64
TIME_NAME_CHARACTERS_MAX = 64
_PREFIXES = {"$share": 2, "$queue": 1, "$exclusive": 1}  # of filters alone (MQTT 5, 4.8.2; EMQX): how many levels
_KAFKA_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class RouteError(ValueError):
    """A route cannot be used; the message says what about it is wrong."""


@dataclass(frozen=True, slots=True)
class Route:
    """One line from MQTT to Kafka; build it with `parse_route`."""

    pattern: str
    levels: tuple[str, ...]
    topic: str
    key: str
    headers: tuple[tuple[str, str], ...]
    timestamp_field: str | None
    time_unit: str
    times: TimeRule | None = None

    @property
    def topic_filter(self) -> str:
        """The MQTT topic filter to subscribe to."""
        return "/".join("+" if _CAPTURE.fullmatch(level) else level for level in self.levels)


def parse_route(
    pattern: str,
    topic: str,
    *,
    key: str = "{mqtt_topic}",
    headers: Mapping[str, str] | None = None,
    timestamp_field: str | None = None,
    time_unit: str = "auto",
    time_zone: tzinfo = UTC,
    time_formats: tuple[str, ...] = (),
) -> Route:
    """Build a route; raises RouteError when the pattern, the Kafka topic or a template is not valid.

    Templates use the pattern's captures and `{mqtt_topic}`, the whole topic. `time_zone` and `time_formats` are for
    times that are text.
    """
    levels = tuple(pattern.split("/"))
    names = _capture_names(pattern, levels)
    check_kafka_topic(topic)
    for template in [key, *(headers or {}).values()]:
        _check_template(template, names | {"mqtt_topic"})
    times = None if timestamp_field is None else TimeRule(timestamp_field, time_unit, time_zone, time_formats)
    return Route(pattern, levels, topic, key, tuple((headers or {}).items()), timestamp_field, time_unit, times)


def check_kafka_topic(topic: str) -> None:
    """Raise RouteError unless Kafka would take this as the name of a topic."""
    if not _KAFKA_TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise RouteError(f'"{topic}" is not a Kafka topic name: 1 to 249 of a-z, A-Z, 0-9, ".", "_" and "-"')


def _capture_names(pattern: str, levels: Sequence[str]) -> set[str]:
    if not pattern or "\0" in pattern or len(pattern.encode()) > 65_535:
        raise RouteError("an MQTT topic pattern has 1 to 65535 bytes and no NUL")
    if levels[0] in _PREFIXES:
        rest = "/".join(levels[_PREFIXES[levels[0]] :])
        raise RouteError(
            f'"{pattern}" begins with {levels[0]}, which is no part of a topic, so it matches no message: '
            f'write "{rest or "#"}"'
        )
    names: set[str] = set()
    for index, level in enumerate(levels):
        capture = _CAPTURE.fullmatch(level)
        if capture and capture[1] in names | {"mqtt_topic"}:
            raise RouteError(f'the capture {level} in "{pattern}" is taken: give each level its own name')
        if capture:
            names.add(capture[1])
        elif level == "#" and index != len(levels) - 1:
            raise RouteError(f'"#" must be the last level of "{pattern}"')
        elif level not in ("+", "#") and re.search(r"[+#{}]", level):
            raise RouteError(f'"{level}" in "{pattern}": a wildcard or a {{capture}} takes a whole level')
    return names


def _check_template(template: str, names: set[str]) -> None:
    try:
        fields = [(name, spec, conversion) for _, name, spec, conversion in string.Formatter().parse(template)]
    except ValueError as error:
        raise RouteError(f'"{template}" is not a template: {error}') from error
    for name, spec, conversion in fields:
        if name is not None and (name not in names or spec or conversion):
            raise RouteError(f'{{{name}}} in "{template}" is not a capture: use one of {", ".join(sorted(names))}')


def match(levels: Sequence[str], topic: str) -> dict[str, str] | None:
    """Return the captures of a topic that the pattern's levels match, or None."""
    parts = topic.split("/")
    if parts[0].startswith("$") and levels[0] != parts[0]:
        return None
    captures: dict[str, str] = {}
    for index, level in enumerate(levels):
        if level == "#":  # also the level above it: "a/#" matches "a"
            return captures
        if index >= len(parts):
            return None
        if level.startswith("{"):
            captures[level[1:-1]] = parts[index]
        elif level not in ("+", parts[index]):
            return None
    return captures if len(parts) == len(levels) else None


def covers(wide: Sequence[str], narrow: Sequence[str]) -> bool:
    """Return whether the filter `wide` matches every topic that `narrow` matches; both as levels of a topic filter."""
    if narrow[0].startswith("$") and wide[0] != narrow[0]:
        return False
    for index, level in enumerate(wide):
        if level == "#":
            return True
        if index >= len(narrow) or narrow[index] == "#" or level not in ("+", narrow[index]):
            return False
    return len(wide) == len(narrow)


def overlaps(one: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether a topic exists that matches both filters, given as levels."""
    for index in range(max(len(one), len(other))):
        first = one[index] if index < len(one) else None
        second = other[index] if index < len(other) else None
        if "#" in (first, second):
            return True
        if first is None or second is None or (first != second and "+" not in (first, second)):
            return False
    return True


def subscriptions(routes: Sequence[Route]) -> list[str]:
    """Return the fewest filters that the routes need; raise RouteError if two would deliver the same message.

    A broker may deliver a message once per matching subscription, which would double it.
    """
    filters = list(dict.fromkeys(route.topic_filter for route in routes))
    levels = {text: text.split("/") for text in filters}
    wide = [text for text in filters if not any(covers(levels[o], levels[text]) for o in filters if o != text)]
    for index, one in enumerate(wide):
        for other in wide[index + 1 :]:
            if overlaps(levels[one], levels[other]):
                raise RouteError(f'"{one}" and "{other}" both match some topics: add a route that covers both, last')
    return wide


@dataclass(frozen=True, slots=True)
class Message:
    """An MQTT message; `properties` are its MQTT properties as Kafka headers."""

    topic: str
    payload: bytes
    received_ms: int
    properties: tuple[tuple[str, bytes], ...] = ()

    @property
    def headers(self) -> tuple[tuple[str, bytes], ...]:
        """The headers of every record from MQTT."""
        own = ("mqtt.topic", self.topic.encode()), ("source", b"mqtt"), ("received_ms", b"%d" % self.received_ms)
        return own + self.properties


@dataclass(frozen=True, slots=True)
class Rejection:
    """A message that cannot be used: its record, the name of the reason, and the reason as a phrase."""

    record: Record
    reason: str
    detail: str


def route_message(routes: Sequence[Route], message: Message) -> Record | Rejection:
    """Return the record of an MQTT message by the first route that matches, or a rejection; raise nothing.

    With `timestamp_field` the payload must be a JSON object, or a number; see `timestamps` for which time it then has.
    """
    for route in routes:
        captures = match(route.levels, message.topic)
        if captures is not None:
            return _to_record(route, captures, message)
    return reject(message, dead_letters.REASON_NO_ROUTE, "no route matches the topic")


def reject(message: Message, reason: str, detail: str, route: Route | None = None) -> Rejection:
    """Return the rejection of a message, with the record for its dead letter."""
    key, payload, now_ms = message.topic.encode(), message.payload, message.received_ms
    pattern, topic = ("", "") if route is None else (route.pattern, route.topic)
    origin = f"mqtt:{message.topic}"
    record = Record("mqtt", topic, key, payload, message.headers, now_ms, now_ms, origin, pattern)
    return Rejection(record, reason, detail)


def _to_record(route: Route, captures: dict[str, str], message: Message) -> Record | Rejection:
    empty = [name for name, text in captures.items() if not text]
    if empty:
        return reject(message, dead_letters.REASON_EMPTY_LEVEL, f"the topic's level {empty[0]} is empty", route)
    payload, now_ms = message.payload, message.received_ms
    try:
        document = None if route.timestamp_field is None else _reading(payload)
    except _Unusable as unusable:
        return reject(message, unusable.reason, str(unusable), route)
    value = _time_field(route, document)
    timestamp_ms, unit = _time_of(route, value, now_ms) or (now_ms, RECEIVED)
    captures["mqtt_topic"] = message.topic
    own = tuple((name, template.format_map(captures).encode()) for name, template in route.headers)
    judged = () if route.timestamp_field is None else ((TIME_UNIT_HEADER, unit.encode()),)
    headers = (*message.headers, *judged, *own)
    key = route.key.format_map(captures).encode()
    origin = f"mqtt:{message.topic}"
    overlooked = _other_time(value, document) if unit == RECEIVED else ""
    unread = why_no_time(value) if unit == RECEIVED else ""
    if value is ABSENT and isinstance(document, dict):
        unread = NO_TIME
    return Record(
        "mqtt",
        route.topic,
        key,
        payload,
        headers,
        timestamp_ms,
        now_ms,
        origin,
        route.pattern,
        unit,
        overlooked,
        unread,
    )


class _Unusable(Exception):
    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def _reading(payload: bytes) -> object:
    """Return the parsed payload for a route with `timestamp_field`; raises _Unusable.

    | payload | becomes |
    |---|---|
    | JSON object; a finite JSON number | a record, see `timestamps` |
    | JSON of another kind, NaN; no JSON, no UTF-8, empty; nested too deep to be read | a dead letter |
    """
    document = _json(payload)
    if isinstance(document, dict):
        return document
    if isinstance(document, bool) or not isinstance(document, (int, float)) or not math.isfinite(document):
        raise _Unusable(dead_letters.REASON_NO_READING, "the payload is JSON, but neither an object nor a number")
    return document


def _time_field(route: Route, document: object) -> object:
    """Return the value of the route's field, or ABSENT; of a repeated name the last value."""
    return route.times.value(document) if route.times is not None and isinstance(document, dict) else ABSENT


def _time_of(route: Route, value: object, received_ms: int) -> tuple[int, str] | None:
    """Return the device's own time and its unit, None for the time of receipt."""
    return None if route.times is None else route.times.read(value, received_ms)


def _other_time(value: object, document: object) -> str:
    """Return the name of another field with a name and value of a time; empty without one.

    A nested field has both names with a dot between, as in timestamp_field.
    """
    if value is not ABSENT or not isinstance(document, dict):
        return ""
    return next((name for name, inner in _fields(document) if _looks_like_a_time(name, inner)), "")


def _fields(document: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield the fields of a reading, then those of the objects in it, FIELDS_SEARCHED_MAX of each."""
    first = list(islice(document.items(), FIELDS_SEARCHED_MAX))
    yield from first
    for outer, value in first:
        if isinstance(value, dict):
            yield from ((f"{outer}.{name}", inner) for name, inner in islice(value.items(), FIELDS_SEARCHED_MAX))


def _looks_like_a_time(name: str, value: object) -> bool:
    last = name[-TIME_NAME_CHARACTERS_MAX:].rpartition(".")[2]
    return _TIME_NAME.fullmatch(last) is not None and device_time(value, "auto") is not None


def _json(payload: bytes) -> object:
    try:
        document: object = _DECODER.decode(payload.decode("utf-8-sig"))
        return document
    except RecursionError:
        raise _Unusable(dead_letters.REASON_TOO_DEEP, "the payload's JSON is nested too deep") from None
    except ValueError as error:
        raise _Unusable(dead_letters.REASON_NOT_JSON, f"the payload is not JSON: {error}") from None


def _whole_number(digits: str) -> int | float:
    """Read a whole number; one of more digits than a time has becomes a float, as Python refuses very long ones."""
    return int(digits) if len(digits) <= 20 else float(digits)


_DECODER = json.JSONDecoder(parse_int=_whole_number)
