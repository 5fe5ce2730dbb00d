"""The sender and the sessions of an active period: new for each, with or without transactions."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from mirror.link.link_model import Link
from mirror.producer.transactional_sender import TransactionalSender
from mirror.replication import active_period
from mirror.replication.active_period import ActivePeriod
from mirror.session.transactional_sessions import TransactionalSessions
from tests.support.waiting import CALL_S
from tests.unit.mirror.ends import MemoryStateTopic, MemoryTarget
from tests.unit.mirror.replication.parts import CONFIG


class Listener:
    """Receives nothing: no stream exists."""

    async def refused_record(self, stream, refused): ...

    def report_problem(self, name, text): ...


def period_of(config=CONFIG, problems=None):
    target = MemoryTarget()
    target._timeout_s = 1.0
    target.state_topic = lambda name, **_transactional: MemoryStateTopic(target, name)
    return ActivePeriod(target, Link(1000), config, problems or {})


@pytest.mark.parametrize("transactions", [False, True])
async def test_the_configuration_chooses_between_the_two_kinds(transactions):
    period = period_of(replace(CONFIG, transactions=transactions))
    async with asyncio.timeout(CALL_S), asyncio.TaskGroup() as tasks:
        period.start(tasks, Listener())
        assert isinstance(period.sender, TransactionalSender) == transactions
        assert isinstance(period.sessions, TransactionalSessions) == transactions
        await period.end()


async def test_each_period_has_a_sender_of_its_own_and_the_task_group_ends_with_it():
    period = period_of()
    assert not period.is_active
    assert not period.is_unfenced
    assert period.silent_s == 0.0
    async with asyncio.timeout(CALL_S), asyncio.TaskGroup() as tasks:
        period.start(tasks, Listener())
        first = period.sender
        assert period.is_active
        await period.end()
        assert not period.is_active
        period.start(tasks, Listener())
        assert period.sender is not first
        await period.end()


async def test_the_end_names_the_problems_that_end_with_it():
    period = period_of(problems={"target broker 1": "x", "target": "y", "target broker 2, connection 3": "z"})
    async with asyncio.timeout(CALL_S), asyncio.TaskGroup() as tasks:
        period.start(tasks, Listener())
        names = await period.end()
    assert {"state topic", active_period.TROUBLE, "target broker 1", "target broker 2, connection 3"} == set(names)


@pytest.mark.parametrize("in_flight", [False, True])
async def test_a_stop_waits_for_acknowledgements_within_the_stop_timeout(in_flight, caplog):
    period = period_of(replace(CONFIG, stop_timeout_ms=5))
    async with asyncio.timeout(CALL_S), asyncio.TaskGroup() as tasks:
        period.start(tasks, Listener())
        if in_flight:
            period.sender.quiet.clear()
        await period.finish()
        assert period.sender.stopping
        await period.end()
    assert ("stopped_without_ack" in caplog.text) == in_flight
