"""PURE: count what routes accept, refuse and overlook, so that `/health` can name it. The time is an argument.

| a route is | when |
|---|---|
| well | its last message was accepted, or fewer than REFUSED_MIN were refused since |
| well | another message was accepted within QUIET_S: metrics show one bad device among good ones |
| unwell | else, until a message is accepted |
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from drupelet.printable import quote

REFUSED_MIN = 5
QUIET_S = 60.0
LOG_EVERY_S = 10.0
OVERLOOKED_SHOWN_S = 300.0
NAME_CHARACTERS_MAX = 60
MISSING_MIN = 20
FOUND = -(1 << 62)  # a count that never reaches MISSING_MIN


@dataclass(slots=True)
class _Status:
    refused: int = 0  # since the last accepted one
    last_reason: str = ""
    accepted_s: float | None = None
    logged_s: dict[str, float] = field(default_factory=dict)  # by reason
    unlogged: dict[str, int] = field(default_factory=dict)


class RouteStatus:
    """Counts per route; a route is an MQTT pattern, a file, or the board, so the configuration bounds them."""

    def __init__(self) -> None:
        self._routes: dict[str, _Status] = {}

    def record_accepted(self, route: str, now_s: float) -> None:
        """Note that a record of the route is on disk in its topic."""
        status = self._routes.setdefault(route, _Status())
        status.refused = 0
        status.accepted_s = now_s

    def record_refused(self, route: str, reason: str, now_s: float) -> int | None:
        """Note a record that cannot be used; return the count for a due log line, or None if none is due."""
        status = self._routes.setdefault(route, _Status())
        status.refused += 1
        status.last_reason = reason
        status.unlogged[reason] = status.unlogged.get(reason, 0) + 1
        if now_s - status.logged_s.get(reason, -math.inf) < LOG_EVERY_S:
            return None
        status.logged_s[reason] = now_s
        return status.unlogged.pop(reason)

    def problem(self, now_s: float) -> str | None:
        """Return a sentence about a route that refuses everything, with the reason, or None."""
        for route, status in self._routes.items():
            quiet = status.accepted_s is None or now_s - status.accepted_s >= QUIET_S
            if route and quiet and status.refused >= REFUSED_MIN:
                return f"{route}: none of the last {status.refused} messages can be used ({status.last_reason})"
        return None


class OverlookedTimes:
    """Routes that do not read their readings' time: it has another name, or another form.

    | reading without a usable time | noted |
    |---|---|
    | has a time under another name | at once |
    | has something in the route's field that is no time | at once |
    | has no such field | after MISSING_MIN such readings, if none ever had the field: it may be misspelt |
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[str, float]] = {}
        self._missing: dict[str, int] = {}  # readings without the field, of routes that never had it

    def note_reading(self, route: str, timestamp_field: str, name: str, now_s: float) -> str | None:
        """Note such a reading; return the text of a log line, the first time for each route, else None."""
        said = (
            f"{route}: readings have no {timestamp_field} but {quote(_short(name))}, so the time of receipt counts: "
            "set timestamp_field to it, or have the devices rename it"
        )
        return self._note(route, "name", said, now_s)

    def unread(self, route: str, timestamp_field: str, why: str, now_s: float) -> str | None:
        """Note a reading whose field has no time; return as `note_reading` does."""
        self._missing[route] = FOUND
        said = f"{route}: {timestamp_field} is there, but no time, so the time of receipt counts; it is {why}"
        return self._note(route, "unread", said, now_s)

    def missing(self, route: str, timestamp_field: str, now_s: float) -> str | None:
        """Note a reading without the route's field; return as `note_reading` does."""
        self._missing[route] = self._missing.get(route, 0) + 1
        if self._missing[route] < MISSING_MIN:
            return None
        said = (
            f"{route}: no reading has had {timestamp_field}, so the time of receipt counts: is timestamp_field right?"
        )
        return self._note(route, "missing", said, now_s)

    def read(self, route: str) -> None:
        """Note that a reading of the route had a time."""
        self._missing[route] = FOUND  # the name is right, so a reading without it is a device without a clock
        self._seen.pop((route, "missing"), None)

    def note(self, now_s: float) -> str | None:
        """Return in one line which routes have had such readings lately."""
        recent = [said for said, seen_s in self._seen.values() if now_s - seen_s < OVERLOOKED_SHOWN_S]
        return "; ".join(recent) or None

    def _note(self, route: str, kind: str, said: str, now_s: float) -> str | None:
        is_new = (route, kind) not in self._seen
        self._seen[route, kind] = said, now_s
        return said if is_new else None


def _short(name: str) -> str:
    return name if len(name) <= NAME_CHARACTERS_MAX else f"{name[:NAME_CHARACTERS_MAX]}…"
