"""A thread that runs blocking work in order and hands each result back to the event loop.

| job | its turn |
|---|---|
| has a waiter | before all background work, first come first served |
| in the background | when no job has a waiter, or after AHEAD_MAX jobs in a row that had one |

Contains: the one place of the broker that makes threads. Does not contain: knowledge of what the work is.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

from edge_broker.thread_checks import enter

Done = Callable[[Any, Exception | None], None]
Job = tuple[Callable[[], Any], Done]
AHEAD_MAX = 8  # else a client that makes topics without end would starve the disk watch and the checkpoint


class Answer:
    """An answer of the loop that a worker's thread waits for; only the first one counts."""

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


class Jobs:
    """Two queues of jobs in one order; one thread puts, one takes."""

    def __init__(self) -> None:
        self._awaited: deque[Job] = deque()
        self._background: deque[Job] = deque()
        self._in_a_row = 0

    def __len__(self) -> int:
        return len(self._awaited) + len(self._background)

    def put(self, job: Job, *, background: bool) -> None:
        """Queue a job."""
        (self._background if background else self._awaited).append(job)

    def take(self) -> Job:
        """The job whose turn it is; IndexError without any."""
        if self._awaited and (self._in_a_row < AHEAD_MAX or not self._background):
            self._in_a_row += 1
            return self._awaited.popleft()
        self._in_a_row = 0
        return self._background.popleft()


class Worker:
    """Runs jobs one after another; `done(result, error)` is called on the loop."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.job: int | None = None  # the number of the job in progress, None between jobs; read from the loop
        self._jobs = Jobs()
        self._count: queue.SimpleQueue[bool] = queue.SimpleQueue()  # True for each job, False for the end
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], Any], done: Done, *, background: bool = False) -> None:
        """Queue `work`; its outcome reaches `done` on the loop, an exception as the second argument."""
        self._jobs.put((work, done), background=background)
        self._count.put(True)

    async def turn(self) -> None:
        """Return once everything queued until now is done."""
        done: asyncio.Future[None] = self._loop.create_future()

        def turn_reached(_result: Any, _error: Exception | None) -> None:
            if not done.done():
                done.set_result(None)

        self.submit(lambda: None, turn_reached, background=True)
        await done

    def close(self) -> None:
        """Finish what is queued, then end the thread."""
        self._count.put(False)
        self._thread.join()

    def _run(self) -> None:
        enter(self._thread.name)
        for number in count():
            self.job = None
            if not self._count.get():
                return
            self.job = number
            work, done = self._jobs.take()
            result: Any = None
            error: Exception | None = None
            try:
                result = work()
            except Exception as caught:  # noqa: BLE001 - whatever it is, the loop decides
                error = caught
            self._loop.call_soon_threadsafe(done, result, error)
            del work, done, result, error  # a thread that waits holds nothing: a job's file, say, that was replaced
