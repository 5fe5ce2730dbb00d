"""A broker of a test's own making, and the command as a person runs it against it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.command import Ran, edge_broker_run


@pytest.fixture
def run(capsys) -> Callable[..., Ran]:
    """Run `edge-broker` with some words."""
    return edge_broker_run(capsys)
