"""Waiting for what a test brings about, in the one way: a wait that fails says what it saw last.

A deadline here bounds a hang; nothing about speed is asserted by one. It is written down as what a quiet machine surely
keeps, and a busy one is given `PATIENCE` times as long (pytest's own time limits, too: `tests/conftest.py`).
Whoever does mean a time counts work instead, or compares with something else that was measured beside it.

Must never come in: clients, processes.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import linecache
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import CodeType
from typing import Any, TypeVar

PATIENCE = 4.0
CALL_S = 120.0  # bounds one call of a client, or of a program, on a busy machine too

_Found = TypeVar("_Found")


class DeadlineError(TimeoutError):
    """What was waited for did not come in time; the message ends with what was seen last."""


class Deadline:
    """The moment by which something must have come: in `quiet_s` seconds on a quiet machine, later on a busy one."""

    def __init__(self, quiet_s: float) -> None:
        self.seconds = quiet_s * PATIENCE
        self._end = time.monotonic() + self.seconds

    @property
    def left_s(self) -> float:
        """Seconds until then, 0 when it has passed."""
        return max(0.0, self._end - time.monotonic())

    @property
    def passed(self) -> bool:
        """Whether it is too late."""
        return time.monotonic() >= self._end

    def error(self, what: str, seen: object) -> DeadlineError:
        """Return what to raise once it has passed: what was waited for and what was seen last."""
        return DeadlineError(f"{what}: not within {self.seconds:g} s; seen last: {seen}")

    def check(self, what: str, seen: object) -> None:
        """Raise DeadlineError when it has passed."""
        if self.passed:
            raise self.error(what, seen)


def wait_until(
    condition: Callable[[], _Found],
    deadline_s: float,
    what: str,
    *,
    poll_s: float = 0.02,
    seen: Callable[[], object] | None = None,
) -> _Found:
    """Return the first true value of `condition`, or raise DeadlineError, which names `what`.

    Seen last is what `seen` returns, else the value of the condition and of what a lambda compares.
    """
    deadline = Deadline(deadline_s)
    while True:
        late = deadline.passed  # asked before: the condition is looked at once more, however long a look takes
        found = condition()
        if found:
            return found
        if late:
            raise deadline.error(what, seen() if seen is not None else _described(condition, found))
        time.sleep(poll_s)


async def until(condition: Callable[[], object], deadline_s: float = 5.0, what: str = "the condition") -> None:
    """The same for what other coroutines bring about."""
    deadline = Deadline(deadline_s)
    while not condition():
        deadline.check(what, _described(condition, False))
        await asyncio.sleep(0.001)


def _described(condition: Callable[[], object], found: object) -> str:
    operands = ", ".join(f"{text} = {value}" for text, value in _operands(condition))
    return f"{found!r} ({operands})" if operands else f"{found!r}"


def _operands(condition: Callable[[], object]) -> Iterator[tuple[str, str]]:
    """The source and the value of what a lambda compares, evaluated once more; nothing for other callables."""
    code = getattr(condition, "__code__", None)
    body = _lambda_body(code) if isinstance(code, CodeType) else None
    if body is None:
        return
    known = {**inspect.getclosurevars(condition).nonlocals, **_defaults(condition)}
    compared = [node for node in ast.walk(body) if isinstance(node, ast.Compare)]
    parts = [part for node in compared for part in (node.left, *node.comparators)] or [body]
    for part in parts:
        if not isinstance(part, ast.Constant):
            with suppress(Exception):  # what cannot be evaluated alone is left out: the wait has failed anyway
                value = eval(compile(ast.Expression(part), "<seen last>", "eval"), condition.__globals__, known)
                yield ast.unparse(part), f"{value!r:.500}"


def _defaults(condition: Any) -> dict[str, object]:
    return {
        name: parameter.default
        for name, parameter in inspect.signature(condition).parameters.items()
        if parameter.default is not parameter.empty
    }


def _lambda_body(code: CodeType) -> ast.expr | None:
    """Where the lambda's source is known, its expression."""
    source = "".join(linecache.getlines(code.co_filename))
    places = [(line, column) for line, _, column, _ in code.co_positions() if line and column is not None]
    if code.co_name != "<lambda>" or not source:
        return None
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Lambda) and (node.body.lineno, node.body.col_offset) in places:
            return node.body
    return None
