"""SYNC: lets the event loop interrupt reading in a thread: a long step checks for it between two bounded pieces.

`asyncio.to_thread` runs work in a copy of the task's context, so that the task's event reaches each of its threads.
"""

from __future__ import annotations

import threading
from contextvars import ContextVar

_interruption: ContextVar[threading.Event | None] = ContextVar("interruption", default=None)


class InterruptedRead(Exception):
    """The source stops: nothing was read, and nothing is known of the file."""


def interrupt_by(event: threading.Event) -> None:
    """Let the event interrupt long steps of the present task, and of the threads that it starts from now on."""
    _interruption.set(event)


def raise_if_interrupted() -> None:
    """Raise InterruptedRead once the event of the present task is set."""
    event = _interruption.get()
    if event is not None and event.is_set():
        raise InterruptedRead
