"""PURE: what a watch has heard: that all is well, that something is wrong, or nothing, which is neither.

| state | meaning | `/health` |
|---|---|---|
| ok | the watch has heard its signal, and the signal says that nothing is wrong | 200 `ok` |
| problem | the signal says that something is wrong | 503, or 200 with a note, as the part decides |
| unknown | the watch hears nothing, so it can tell neither | 200 `unknown: …` |

WATCHES.md lists the watches of all parts, and how each tells silence from well.
Does not contain: the signals themselves, clocks, and HTTP (http.py).
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
    """The state of the watch `name`; `reason` says why it is not ok, and the remedy, in one line without a period.

    `is_early`: it has not had the time to hear anything, which is worth no line in the log.
    """

    name: str
    state: WatchState
    reason: str = ""
    is_early: bool = False


def ok(name: str) -> Watch:
    """Return a watch that has heard that all is well."""
    return Watch(name, WatchState.OK)


def unknown(name: str, reason: str) -> Watch:
    """Return a watch that hears nothing."""
    return Watch(name, WatchState.UNKNOWN, reason)


def early(name: str, reason: str) -> Watch:
    """Return a watch that has heard nothing yet; `reason` says what it waits for."""
    return Watch(name, WatchState.UNKNOWN, reason, is_early=True)


def health_text(watches: Iterable[Watch], notes: Iterable[str] = ()) -> str:
    """Return what /health says where nothing is wrong: `ok`, or which watches hear nothing; then the notes."""
    silent = unknown_text(watches)
    return "; ".join([f"unknown: {silent}" if silent else "ok", *notes])


def unknown_text(watches: Iterable[Watch]) -> str:
    """Return the watches that hear nothing, those with the same reason together; empty where each hears."""
    names: dict[str, list[str]] = {}
    for watch in watches:
        if watch.state is WatchState.UNKNOWN:
            names.setdefault(watch.reason, []).append(watch.name)
    return "; ".join(f"{', '.join(found)}: {reason}" for reason, found in names.items())
