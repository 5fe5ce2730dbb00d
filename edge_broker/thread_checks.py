"""In which thread a function runs: a mark that tests check, and that costs nothing where they do not run.

| place | who is there |
|---|---|
| `loop` | callbacks of the event loop, from the moment a broker serves until it stops |
| a worker's name | its jobs (broker/outcomes.py names the workers) |
| none | a start before the loop serves, a stop after it, a direct call of storage |

Code in no place may call everything, as nothing else runs. Checked where EDGE_BROKER_CHECKS_PLACES is set when
this module is imported: the tests set it for themselves and for the brokers that they start.

Contains: the mark, and where this thread is. Does not contain: threads, what the functions do.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from functools import wraps
from inspect import isgeneratorfunction
from typing import Any, ParamSpec, TypeVar, cast

SWITCH = "EDGE_BROKER_CHECKS_PLACES"
LOOP = "loop"
P = ParamSpec("P")
R = TypeVar("R")
_CHECKED = bool(os.environ.get(SWITCH))
_thread = threading.local()


def place() -> str | None:
    """Where this thread is."""
    return getattr(_thread, "place", None)


def enter(name: str | None) -> None:
    """This thread is there from now on."""
    _thread.place = name


class running_in:
    """This thread is there during the block; None: where nothing else runs."""

    __slots__ = ("_before", "_name")

    def __init__(self, name: str | None) -> None:
        self._name = name

    def __enter__(self) -> None:
        self._before = getattr(_thread, "place", None)
        _thread.place = self._name

    def __exit__(self, *_: object) -> None:
        _thread.place = self._before


def runs_in(*places: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Say where a function runs; without `places`: in any worker, never on the loop. AssertionError under test.

    A generator runs where its steps are taken: it may be made anywhere.
    """

    def mark(function: Callable[P, R]) -> Callable[P, R]:
        if not _CHECKED:
            return function

        def check_place() -> None:
            here = place()
            assert here is None or (here in places if places else here != LOOP), (
                f"{function.__qualname__} runs in {' or '.join(places) or 'a worker'}, and was called in {here}"
            )

        @wraps(function)
        def run_checked(*arguments: P.args, **named: P.kwargs) -> R:
            check_place()
            return function(*arguments, **named)

        @wraps(function)
        def checked_steps(*arguments: P.args, **named: P.kwargs) -> Iterator[Any]:
            check_place()
            for step in cast("Iterator[Any]", function(*arguments, **named)):
                yield step
                check_place()

        return cast("Callable[P, R]", checked_steps) if isgeneratorfunction(function) else run_checked

    return mark
