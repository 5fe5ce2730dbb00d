"""Coroutines under test: one that runs beside the test and is ended with it, and waiting for what it brings about.

Must never come in: clients, processes (processes.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any


@contextlib.asynccontextmanager
async def running_task(work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Run `work` beside the block and cancel it behind."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until(condition: Callable[[], bool], deadline_s: float = 5.0) -> None:
    """Return once the condition holds; AssertionError after the deadline."""
    end = asyncio.get_running_loop().time() + deadline_s
    while not condition():
        assert asyncio.get_running_loop().time() < end
        await asyncio.sleep(0.001)
