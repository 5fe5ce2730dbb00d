"""Waits before a next attempt: all of them end early, and later ones are waits again."""

from __future__ import annotations

import asyncio

from mirror.client.retry_wait import Pauses
from tests.support.waiting import CALL_S


async def test_every_wait_that_has_begun_ends_at_once_and_later_ones_do_not():
    pauses = Pauses()
    waits = [asyncio.ensure_future(pauses.wait(10 * CALL_S)) for _ in range(3)]
    await asyncio.sleep(0)
    pauses.end()
    async with asyncio.timeout(CALL_S):
        await asyncio.gather(*waits)
    later = asyncio.ensure_future(pauses.wait(10 * CALL_S))
    await asyncio.sleep(0)
    assert not later.done()
    pauses.end()
    await later


async def test_a_wait_that_nobody_ends_is_over_in_its_time():
    async with asyncio.timeout(CALL_S):
        await Pauses().wait(0.001)
