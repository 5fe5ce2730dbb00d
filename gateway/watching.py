"""Collect the watches of all sources: their states for /health and metrics, a log line for each change.

Does not contain: the meaning of the states (drupelet/observe/watches.py), and the signals of each source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, runtime_checkable

from prometheus_client import Gauge

from drupelet.observe.log_tree import Log
from drupelet.observe.watches import Watch, WatchState

LOOK_S = 1.0
_log = Log("gateway.watches")


@runtime_checkable
class Watching(Protocol):
    """A source that has watches."""

    def watches(self) -> list[Watch]:
        """Return the present state of each watch."""


class Watches:
    """Every watch of the gateway."""

    def __init__(self, gauge: Gauge, found: Iterable[Callable[[], list[Watch]]]) -> None:
        """`gauge` has the labels `watch` and `state`; each of `found` returns the watches of one source."""
        self._gauge = gauge
        self._found = list(found)
        self._reported: dict[str, WatchState] = {}

    def states(self) -> list[Watch]:
        """Return the present state of each watch."""
        return [watch for found in self._found for watch in found()]

    def refresh(self) -> None:
        """Set the metric, and log each watch that loses its signal, or receives it again."""
        for watch in self.states():
            for state in WatchState:
                self._gauge.labels(watch.name, state.value).set(watch.state is state)
            self._report(watch)

    def _report(self, watch: Watch) -> None:
        before = self._reported.get(watch.name, WatchState.OK)
        if watch.state is before or (watch.is_early):
            return
        self._reported[watch.name] = watch.state
        if watch.state is WatchState.OK:
            _log.info("watch_heard", watch=watch.name)
        else:
            _log.warning(f"watch_{watch.state.value}", watch=watch.name, reason=watch.reason)
