"""Commands as a person runs them, in this process: `edge-broker` with its status and what it wrote, any other's main.

Must never come in: processes (processes.py), what a command should say.
"""

from __future__ import annotations

import functools
import json
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar, cast

import pytest

from edge_broker.cli import main
from tests.support import hygiene

_Main = TypeVar("_Main", bound=Callable[..., int])


@contextmanager
def as_command() -> Iterator[None]:
    """Set back what a command sets for its process: logging, signals, garbage collection."""
    before = hygiene.settings()
    try:
        yield
    finally:
        deque(hygiene.restored(before), maxlen=0)


def in_process(command: _Main) -> _Main:
    """Return a command's main() that sets back what it sets for its process."""

    @functools.wraps(command)
    def run(*arguments: object, **options: object) -> int:
        with as_command():
            return command(*arguments, **options)

    return cast(_Main, run)


class Ran(NamedTuple):
    """What a command came to."""

    status: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """What it wrote with `--json`."""
        return [json.loads(line) for line in self.out.splitlines()]


def edge_broker_run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Return what runs `edge-broker` with some words."""

    def run(*words: object) -> Ran:
        try:
            status = main([str(word) for word in words])
        except SystemExit as end:
            status = int(end.code or 0)
        return Ran(status, *capsys.readouterr())

    return run
