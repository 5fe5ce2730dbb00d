"""A worker thread without a thread: the test says when a job is done, and when the loop learns of it.

Contains: the queue, which is the product's own, and what is done but not reported. Does not contain: knowledge of
what the work is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from edge_broker.network.worker import Jobs
from edge_broker.testing.loop import Loop
from edge_broker.thread_checks import running_in


class HandWorker:
    """A worker thread whose jobs run when the test says so."""

    def __init__(self, loop: Loop, name: str) -> None:
        self._loop = loop
        self._name = name
        self.submitted = 0
        self._jobs = Jobs()
        self._done: deque[tuple[Callable[[Any, Exception | None], None], Any, Exception | None]] = deque()

    def __len__(self) -> int:
        return len(self._jobs) + len(self._done)

    def submit(
        self, work: Callable[[], Any], done: Callable[[Any, Exception | None], None], *, background: bool = False
    ) -> None:
        """Queue a job."""
        self.submitted += 1
        self._jobs.put((work, done), background=background)

    def work(self) -> None:
        """Do one job in the worker; the loop does not know yet."""
        work, done = self._jobs.take()
        try:
            with running_in(self._name):
                self._done.append((done, work(), None))
        except Exception as error:  # noqa: BLE001 - as the real worker does
            self._done.append((done, None, error))

    def report_done(self) -> None:
        """Hand everything that is done to the loop, which gets to it in its turn."""
        while self._done:
            done, result, error = self._done.popleft()
            self._loop.call_soon(done, result, error)

    def report(self) -> None:
        """Let the loop learn of everything that is done."""
        self.report_done()
        self._loop.run()

    @property
    def idle(self) -> bool:
        """True when no job is left to be done; what is done may not be reported yet."""
        return not self._jobs

    def step(self) -> None:
        """Do one job and report it."""
        if self._jobs:
            self.work()
        self.report()
