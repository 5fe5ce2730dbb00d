"""Data directories that the storage code itself made, and the command as a person runs it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command import Ran, edge_broker_run
from tests.support.doctor_data.directory import fill_directory


@pytest.fixture
def run(capsys) -> Callable[..., Ran]:
    """Run `edge-broker` with some words."""
    return edge_broker_run(capsys)


@pytest.fixture
def data(tmp_path) -> Path:
    """A directory with topic t: partition 0 has several segments, partition 1 an idempotent producer; nobody has it."""
    return fill_directory(tmp_path / "data")
