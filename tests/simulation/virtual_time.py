"""An event loop whose clock jumps to the next timer when nothing is ready, and all that would make a run of it differ.

Whoever asks for the time while `virtual_time` is open is told the loop's; tasks hash by their number, so that sets of
them have one order. Must never come in: what is run.
"""

from __future__ import annotations

import asyncio
import logging
import selectors
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

BEGIN_S = 1000.0
WALL_S = 1_800_000_000.0  # what the wall clock shows when the loop's shows 0


class Stuck(Exception):
    """Nothing is ready, and no timer is set: nothing would ever happen again."""


class _Selector(selectors.SelectSelector):
    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stuck
        self.loop.now += max(0.0, timeout)
        return []


class _Task(asyncio.Task[Any]):
    number = 0

    def __hash__(self) -> int:
        return self.number


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop without sockets and threads, whose seconds take no time."""

    def __init__(self) -> None:
        self.now = BEGIN_S
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)
        self._numbers = count(1)
        self.set_task_factory(self._made)

    def time(self) -> float:
        """Seconds since BEGIN_S before it was made."""
        return self.now

    def _made(self, loop: asyncio.AbstractEventLoop, coro: Any, **given: Any) -> asyncio.Task[Any]:
        task = _Task(coro, loop=loop, **given)
        task.number = next(self._numbers)
        return task


@contextmanager
def virtual_time(failed: Callable[[str], None]) -> Iterator[VirtualLoop]:
    """The loop, as that of now, while all clocks show its time and nothing is logged.

    `failed` is told what a callback has raised.
    """

    def handle(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if "never retrieved" not in context["message"]:
            failed(f"{context['message']}: {context.get('exception')!r}")

    loop = VirtualLoop()
    loop.set_exception_handler(handle)
    clocks = time.monotonic, time.time, time.clock_gettime
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    asyncio.set_event_loop(loop)
    time.monotonic, time.time, time.clock_gettime = loop.time, lambda: WALL_S + loop.now, lambda _: loop.now
    try:
        yield loop
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    finally:
        time.monotonic, time.time, time.clock_gettime = clocks
        asyncio.set_event_loop(None)
        loop.close()
        logging.disable(disabled)
