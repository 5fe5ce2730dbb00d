"""All kinds of abuse, those first that are always tried."""

from __future__ import annotations

from collections.abc import Iterator

from tests.abuse import frames, strangers
from tests.abuse.frames import Case


def rows() -> Iterator[Case]:
    """The rows of past trials, and what can be done before a log-in and without rights."""
    yield from frames.rows()
    yield from strangers.handshakes()
    yield from strangers.log_ins()
    yield from strangers.without_rights()


def cases() -> list[Case]:
    """All kinds of abuse."""
    return [*rows(), *frames.on_every_api()]
