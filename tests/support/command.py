"""`edge-broker` as a person runs it, in this process: its status and what it wrote.

Must never come in: processes (processes.py), what a command should say.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from edge_broker.cli import main


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
