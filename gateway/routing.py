"""PURE: from an MQTT topic and payload to a Kafka record, or to the reason why not.

No client, clock or file may come in here: the time of receipt is an argument. Topic filters follow MQTT 5, section
4.7: `+` is one level, `#` the rest and last, and neither matches a first level that starts with `$`. A level written
`{name}` matches as `+` does and gives its text a name, for use in the key and the headers:
`sites/+/devices/{device}/readings`.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gateway.records import Record

TIMESTAMP_MS_MAX = 253_402_300_799_999  # the last millisecond of the year 9999
_CAPTURE = re.compile(r"\{([a-z][a-z0-9_]*)\}")
_KAFKA_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class RouteError(ValueError):
    """A route cannot be used; the message says what about it is wrong."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A message that no route takes, with the reason in one phrase."""

    reason: str


@dataclass(frozen=True, slots=True)
class Route:
    """One line from MQTT to Kafka; build it with `parse_route`."""

    pattern: str
    levels: tuple[str, ...]
    topic: str
    key: str
    headers: tuple[tuple[str, str], ...]
    timestamp_field: str | None

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
) -> Route:
    """Build a route; raises RouteError when the pattern, the Kafka topic or a template is not valid.

    Templates use the pattern's captures and `{mqtt_topic}`, the whole topic.
    """
    levels = tuple(pattern.split("/"))
    names = _capture_names(pattern, levels)
    check_kafka_topic(topic)
    for template in [key, *(headers or {}).values()]:
        _check_template(template, names | {"mqtt_topic"})
    return Route(pattern, levels, topic, key, tuple((headers or {}).items()), timestamp_field)


def check_kafka_topic(topic: str) -> None:
    """Raise RouteError unless Kafka would take this as the name of a topic."""
    if not _KAFKA_TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise RouteError(f'"{topic}" is not a Kafka topic name: 1 to 249 of a-z, A-Z, 0-9, ".", "_" and "-"')


def _capture_names(pattern: str, levels: Sequence[str]) -> set[str]:
    if not pattern or "\0" in pattern or len(pattern.encode()) > 65_535:
        raise RouteError("an MQTT topic pattern has 1 to 65535 bytes and no NUL")
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
    """Whether the filter `wide` matches every topic that `narrow` matches; both as levels of a topic filter."""
    if narrow[0].startswith("$") and wide[0] != narrow[0]:
        return False
    for index, level in enumerate(wide):
        if level == "#":
            return True
        if index >= len(narrow) or narrow[index] == "#" or level not in ("+", narrow[index]):
            return False
    return len(wide) == len(narrow)


def overlaps(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether some topic matches both filters, given as levels."""
    for index in range(max(len(one), len(other))):
        first = one[index] if index < len(one) else None
        second = other[index] if index < len(other) else None
        if "#" in (first, second):
            return True
        if first is None or second is None or (first != second and "+" not in (first, second)):
            return False
    return True


def subscriptions(routes: Sequence[Route]) -> list[str]:
    """Return the fewest filters that the routes need; raises RouteError where two would both deliver a message.

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


def route_message(routes: Sequence[Route], topic: str, payload: bytes, received_ms: int) -> Record | Rejection:
    """Turn one MQTT message into a record by the first route that matches, or say why not.

    With `timestamp_field` the payload must be a JSON object that holds the time in ms under that name.
    """
    for route in routes:
        captures = match(route.levels, topic)
        if captures is not None:
            return _to_record(route, captures, topic, payload, received_ms)
    return Rejection("no route matches the topic")


def _to_record(
    route: Route, captures: dict[str, str], topic: str, payload: bytes, received_ms: int
) -> Record | Rejection:
    empty = [name for name, text in captures.items() if not text]
    if empty:
        return Rejection(f"the topic's level {empty[0]} is empty")
    timestamp_ms = received_ms if route.timestamp_field is None else _timestamp_ms(payload, route.timestamp_field)
    if isinstance(timestamp_ms, Rejection):
        return timestamp_ms
    captures["mqtt_topic"] = topic
    own = tuple((name, template.format_map(captures).encode()) for name, template in route.headers)
    headers = (("mqtt.topic", topic.encode()), ("source", b"mqtt"), ("received_ms", b"%d" % received_ms), *own)
    key = route.key.format_map(captures).encode()
    return Record("mqtt", route.topic, key, payload, headers, timestamp_ms, received_ms, f"mqtt:{topic}")


def _timestamp_ms(payload: bytes, field: str) -> int | Rejection:
    try:
        document = json.loads(payload)
    except (ValueError, RecursionError):
        return Rejection("the payload is not JSON")
    value = document.get(field) if isinstance(document, dict) else None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= TIMESTAMP_MS_MAX:
        return Rejection(f"the payload holds no time in ms under {field}")
    return value
