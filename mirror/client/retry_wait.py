"""Waits before a next attempt, which all end early once an end is reached again.

An outage has every partition back off to its longest wait; when the link is back, none of them is to sit it out.

Must never come in: how long a wait is (drupelet.backoff), and what is tried again.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Pauses:
    """The waits that concern one end; of one event loop."""

    def __init__(self) -> None:
        self._ended = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        """Wait so long, or until `end`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()

    def end(self) -> None:
        """End every wait that has begun."""
        ended, self._ended = self._ended, asyncio.Event()
        ended.set()
