"""PURE: the state of a watch: its signal reports health, a problem, or does not arrive, which is neither.

| state | meaning | `/health` |
|---|---|---|
| ok | the signal arrives and reports no problem | 200 `ok` |
| problem | the signal reports a problem | 503, or 200 with a note, as the part decides |
| unknown | the signal does not arrive | 200 `unknown: …` |

WATCHES.md lists the watches of all parts, and how each detects silence.
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

    `is_early`: the signal is not due yet; no log line.
    """

    name: str
    state: WatchState
    reason: str = ""
    is_early: bool = False


def ok(name: str) -> Watch:
    """Return a watch whose signal reports no problem."""
    return Watch(name, WatchState.OK)


def unknown_watch(name: str, reason: str) -> Watch:
    """Return a watch without its signal."""
    return Watch(name, WatchState.UNKNOWN, reason)


def early(name: str, reason: str) -> Watch:
    """Return a watch whose signal is not due yet; `reason` names what it waits for."""
    return Watch(name, WatchState.UNKNOWN, reason, is_early=True)


def health_text(watches: Iterable[Watch], notes: Iterable[str] = ()) -> str:
    """Return the text of /health without a problem: `ok`, or the unknown watches; then the notes."""
    silent = unknown_text(watches)
    return "; ".join([f"unknown: {silent}" if silent else "ok", *notes])


def unknown_text(watches: Iterable[Watch]) -> str:
    """Return the unknown watches, those with the same reason together; empty without any."""
    names: dict[str, list[str]] = {}
    for watch in watches:
        if watch.state is WatchState.UNKNOWN:
            names.setdefault(watch.reason, []).append(watch.name)
    return "; ".join(f"{', '.join(found)}: {reason}" for reason, found in names.items())
