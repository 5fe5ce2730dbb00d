"""Waits between retries."""

from __future__ import annotations

import asyncio
import random

BACKOFF_FIRST_S = 0.2
BACKOFF_MAX_S = 10.0


class Backoff:
    """Waits that grow from `first_s` to `max_s`, with jitter, until `reset`."""

    def __init__(self, first_s: float = BACKOFF_FIRST_S, max_s: float = BACKOFF_MAX_S) -> None:
        self._first_s = first_s
        self._max_s = max_s
        self._next_s = first_s

    def reset(self) -> None:
        """Start again from the shortest wait."""
        self._next_s = self._first_s

    async def sleep(self) -> None:
        """Wait, and wait longer next time."""
        delay_s = self._next_s * random.uniform(0.75, 1.25)  # noqa: S311 (no secret: it keeps boards out of step)
        self._next_s = min(self._next_s * 2, self._max_s)
        await asyncio.sleep(delay_s)
