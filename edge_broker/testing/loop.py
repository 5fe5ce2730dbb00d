"""An event loop for the broker, with time that passes only when the test says so.

Contains: callbacks and timers. Does not contain: threads, sockets, a clock of the machine.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable

from edge_broker.thread_checks import LOOP, enter, place


class Handle:
    """A callback that is due."""

    def __init__(self, call: Callable[..., object], arguments: tuple[object, ...]) -> None:
        self.call: Callable[..., object] | None = call
        self.arguments = arguments

    def cancel(self) -> None:
        """Never call it."""
        self.call = None

    def run(self) -> None:
        """Call it, unless it was cancelled."""
        if self.call is not None:
            before = place()
            enter(LOOP)
            try:
                self.call(*self.arguments)
            finally:
                enter(before)


class Loop:
    """An event loop for the broker; its time passes only as the test says."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._soon: deque[Handle] = deque()
        self._timers: list[tuple[float, int, Handle]] = []
        self._count = itertools.count()

    def time(self) -> float:
        """Seconds since the test began."""
        return self.now_s

    def call_soon(self, call: Callable[..., object], *arguments: object) -> Handle:
        """Call in the next `run`."""
        handle = Handle(call, arguments)
        self._soon.append(handle)
        return handle

    def call_later(self, delay_s: float, call: Callable[..., object], *arguments: object) -> Handle:
        """Call once so much time has passed."""
        handle = Handle(call, arguments)
        heapq.heappush(self._timers, (self.now_s + delay_s, next(self._count), handle))
        return handle

    def step(self) -> bool:
        """Run the callback that is due first; False when there is none."""
        if self._soon:
            self._soon.popleft().run()
            return True
        return False

    def run(self) -> bool:
        """Run everything that is due now; False when there was nothing."""
        ran = bool(self._soon)
        while self._soon:
            self._soon.popleft().run()
        return ran

    def advance(self, ms: float) -> None:
        """Let time pass, running each timer at its time."""
        end = self.now_s + ms / 1000
        while self._timers and self._timers[0][0] <= end:
            self.now_s, _, handle = heapq.heappop(self._timers)
            handle.run()
            if self._soon:
                self.run()
        self.now_s = end
        self.run()
