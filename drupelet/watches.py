"""PURE: what a watch has heard: that all is well, that something is wrong, or nothing, which is neither.

| state | meaning | `/health` |
|---|---|---|
| ok | the watch has heard its signal, and the signal says that nothing is wrong | 200 `ok` |
| problem | the signal says that something is wrong | 503, or 200 with a note, as the part decides |
| unknown | the watch hears nothing, so it can tell neither | 200 `unknown: …` |

WATCHES.md lists the watches of all parts, and how each tells silence from well.
Does not contain: the signals themselves, clocks, and HTTP (drupelet/http.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple


class WatchState(StrEnum):
    """The state of a watch, as metrics name it."""

    OK = "ok"
    PROBLEM = "problem"
    UNKNOWN = "unknown"


class Watch(NamedTuple):
    """The state of the watch `name`; `reason` says why it is not ok, and the remedy, in one line without a period."""

    name: str
    state: WatchState
    reason: str = ""


def ok(name: str) -> Watch:
    """Return a watch that has heard that all is well."""
    return Watch(name, WatchState.OK)


def unknown(name: str, reason: str) -> Watch:
    """Return a watch that hears nothing; an empty `reason`: it is too early to say so."""
    return Watch(name, WatchState.UNKNOWN, reason)


def health_text(watches: Iterable[Watch], notes: Iterable[str] = ()) -> str:
    """Return what /health says where nothing is wrong: `ok`, or which watches hear nothing; then the notes."""
    silent = unknown_text(watches)
    return "; ".join([f"unknown: {silent}" if silent else "ok", *notes])


def unknown_text(watches: Iterable[Watch]) -> str:
    """Return the watches that hear nothing, those with the same reason together; empty where each hears."""
    names: dict[str, list[str]] = {}
    for watch in watches:
        if watch.state is WatchState.UNKNOWN and watch.reason:
            names.setdefault(watch.reason, []).append(watch.name)
    return "; ".join(f"{', '.join(found)}: {reason}" for reason, found in names.items())
