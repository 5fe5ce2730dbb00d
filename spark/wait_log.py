"""Log what a job waits for, at once and again at intervals, so that silence needs no explanation.

Contains: the times of the lines. Does not contain: the events that a job waits for.
"""

import time
from threading import Event, Thread
from types import TracebackType
from typing import Self

from spark.logs import log

REPEAT_S = 15.0


class Wait:
    """One wait; logs its beginning, and every 15 s the elapsed seconds.

    As a context manager it logs from a thread; in a loop, call `say`.
    """

    def __init__(self, event: str, *, level: str = "info", **fields: object) -> None:
        self._event, self._level, self._fields = event, level, fields
        self._began_s = time.monotonic()
        self._said_s: float | None = None
        self._done = Event()
        self._thread = Thread(target=self._repeat, name=event, daemon=True)

    def say(self, **fields: object) -> None:
        """Write the line if it is due; `fields` are added to it."""
        now_s = time.monotonic()
        if self._said_s is None:
            log(self._level, self._event, **self._fields, **fields)
        elif now_s - self._said_s >= REPEAT_S:
            log(self._level, self._event, **self._fields, **fields, waited_s=round(now_s - self._began_s))
        else:
            return
        self._said_s = now_s

    def __enter__(self) -> Self:
        self._began_s = time.monotonic()
        self.say()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _repeat(self) -> None:
        while not self._done.wait(REPEAT_S):
            self.say()
