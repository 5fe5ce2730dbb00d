"""All kinds of abuse, in the order in which a short run tries them."""

from __future__ import annotations

from collections.abc import Iterator

from tests.abuse import frames, strangers
from tests.abuse.frames import Case


def always() -> list[Case]:
    """The rows of past trials."""
    return list(frames.rows())


def by_strangers() -> Iterator[Case]:
    """What can be done before a log-in and without rights."""
    yield from strangers.handshakes()
    yield from strangers.log_ins()
    yield from strangers.without_rights()


def cases() -> list[Case]:
    """All kinds of abuse."""
    return [*always(), *by_strangers(), *frames.on_every_api()]
