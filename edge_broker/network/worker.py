"""A thread that runs blocking work in order and hands each result back to the event loop.

Lives here: the one place of the broker that makes threads. Must never come in: knowledge of what the work is.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from itertools import count
from typing import Any

Done = Callable[[Any, Exception | None], None]


class Answer:
    """What a worker's thread waits for and the loop gives it; only the first one counts."""

    def __init__(self) -> None:
        self._given: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()

    def put(self, error: Exception | None) -> None:
        """Let the thread go on, or raise `error` in it."""
        self._given.put(error)

    def wait(self, seconds: float) -> None:
        """Return once None was put; raises what else was put, or TimeoutError."""
        try:
            error = self._given.get(timeout=seconds)
        except queue.Empty:
            raise TimeoutError from None
        if error is not None:
            raise error


class Worker:
    """Runs jobs one after another, first in, first out; `done(result, error)` is called on the loop."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.job: int | None = None  # the number of the job under way, None between jobs; read from the loop
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Done] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], Any], done: Done) -> None:
        """Queue `work`; its outcome reaches `done` on the loop, an exception as the second argument."""
        self._jobs.put((work, done))

    async def turn(self) -> None:
        """Return once everything queued until now is done."""
        done: asyncio.Future[None] = self._loop.create_future()

        def reached(_result: Any, _error: Exception | None) -> None:
            if not done.done():
                done.set_result(None)

        self.submit(lambda: None, reached)
        await done

    def close(self) -> None:
        """Finish what is queued, then end the thread."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        for number in count():
            self.job = None
            job = self._jobs.get()
            if job is None:
                return
            self.job = number
            work, done = job
            result: Any = None
            error: Exception | None = None
            try:
                result = work()
            except Exception as caught:  # noqa: BLE001 - whatever it is, the loop decides
                error = caught
            self._loop.call_soon_threadsafe(done, result, error)
