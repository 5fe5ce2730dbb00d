"""A connection's turns: it always takes something where nothing is in flight, whatever the link's figures are."""

from __future__ import annotations

import itertools

import pytest

from mirror.link.link_model import BATCH_BYTES_MIN, LEAST_BYTES, Link
from tests.unit.mirror.test_urgent import Loads, lane, pipe_of

ACTIVE = (1, 2, 3, 4, 16)
BYTES_MAX = (LEAST_BYTES, 2 << 20, 64 << 20)
BATCHES = (100, BATCH_BYTES_MIN, 900_000, 20_000_000)
RATES = (None, 1000, 1_000_000, 16_777_216, 250_000_000, 10_000_000_000)


def link_of(rate, bytes_max):
    link = Link(bytes_max)
    if rate is not None:
        mark = link.request_sent(0.0, rate)
        link.request_acked(1.0, mark)
    return link


@pytest.mark.parametrize("urgent", [False, True])
@pytest.mark.parametrize("backlog", [False, True])
async def test_a_connection_with_nothing_in_flight_takes_something(backlog, urgent):
    stuck = []
    for rate, bytes_max, active, size in itertools.product(RATES, BYTES_MAX, ACTIVE, BATCHES):
        first, second = lane("readings", backlog=backlog, urgent=urgent), lane("logs", backlog=backlog)
        sender = Loads(first, second, each=size)
        sender.link = link_of(rate, bytes_max)
        sender.active = active
        pipe = pipe_of(sender)
        try:
            pipe.put(first)
            pipe.put(second)
            if not pipe._load():
                stuck.append((rate, bytes_max, active, size))
        finally:
            pipe.task.cancel()
    assert stuck == []
