"""SYNC: let the event loop interrupt reading in a thread: a long step checks an event between bounded slices.

`asyncio.to_thread` runs work in a copy of the task's context, so that the task's event reaches each of its threads.
"""

from __future__ import annotations

import threading
from contextvars import ContextVar

_interruption: ContextVar[threading.Event | None] = ContextVar("interruption", default=None)


class InterruptedRead(Exception):
    """The source stops: nothing was read, and the file's state is unknown."""


def interrupt_by(event: threading.Event) -> None:
    """Let the event interrupt long steps of the present task and of threads that it starts later."""
    _interruption.set(event)


def raise_if_interrupted() -> None:
    """Raise InterruptedRead once the event of the present task is set."""
    event = _interruption.get()
    if event is not None and event.is_set():
        raise InterruptedRead
