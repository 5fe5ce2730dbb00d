"""Waits before a next attempt, all of which end early once a cluster is reached again.

In an outage each partition backs off to its longest wait; when the link is back, none should wait that long.
Does not contain: the length of a wait (drupelet.backoff), attempts.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Pauses:
    """The waits for one cluster; of one event loop."""

    def __init__(self) -> None:
        self._ended = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        """Wait so many seconds, or until `end`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()

    def end(self) -> None:
        """End every wait that has begun."""
        ended, self._ended = self._ended, asyncio.Event()
        ended.set()
