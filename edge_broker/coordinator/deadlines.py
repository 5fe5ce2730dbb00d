"""Deadlines by key: which is next, which are due.

Contains: a heap that tolerates moved deadlines. Does not contain: a clock; the caller says what time it is.

A heartbeat moves its member's deadline and nothing else, so a deadline moved later touches only a dictionary:
the heap entry stays where it was and is put right when it comes to the top.
"""

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

STALE_MAX = 1000  # entries of deadlines that were taken away or moved: more are cleared out


class Deadlines(Generic[K]):
    """One deadline per key; keys must be comparable with each other."""

    def __init__(self) -> None:
        self._at_ms: dict[K, int] = {}
        self._heap: list[tuple[int, K]] = []

    def set(self, key: K, at_ms: int) -> None:
        """Set or move the deadline of `key`."""
        before = self._at_ms.get(key)
        self._at_ms[key] = at_ms
        if len(self._heap) > 2 * len(self._at_ms) + STALE_MAX:
            self._heap = [(at, known) for known, at in self._at_ms.items() if known != key]
            heapq.heapify(self._heap)
            before = None
        if before is None or at_ms < before:
            heapq.heappush(self._heap, (at_ms, key))

    def cancel(self, key: K) -> None:
        """Take the deadline of `key` away, if it has one."""
        self._at_ms.pop(key, None)

    def next_ms(self) -> int | None:
        """The earliest deadline; None when there is none."""
        while self._heap:
            entry_ms, key = self._heap[0]
            at_ms = self._at_ms.get(key)
            if at_ms == entry_ms:
                return at_ms
            heapq.heappop(self._heap)
            if at_ms is not None and at_ms > entry_ms:
                heapq.heappush(self._heap, (at_ms, key))
        return None

    def take_due(self, now_ms: int) -> K | None:
        """Take away and return the earliest key whose deadline is at or before `now_ms`."""
        next_ms = self.next_ms()
        if next_ms is None or next_ms > now_ms:
            return None
        _, key = heapq.heappop(self._heap)
        del self._at_ms[key]
        return key
