"""What is reported and measured each second."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from kafka_wire.connection.byte_counters import Traffic
from mirror.client.fetcher import WAIT_ALL_S
from mirror.link.link_model import Link
from mirror.partition.stream import Memory
from mirror.replication import health_watch
from mirror.replication.health_watch import SILENT_S, HealthWatch
from mirror.status.lag_watch import WatchedParts
from mirror.status.metrics import Metrics
from mirror.status.problems import Troubles
from mirror.status.rates import Progress
from tests.support.waiting import CALL_S
from tests.unit.mirror.replication.parts import CONFIG, TP, Period, new_stream


class Setup:
    def __init__(self, *streams):
        self.period, self.problems, self.metrics, self.memory = Period(), Troubles(), Metrics(), Memory()
        self.source = SimpleNamespace(
            reader=SimpleNamespace(silent_s=0.0, busy=frozenset()), ends=self.ends, traffic=Traffic()
        )
        self.standby = SimpleNamespace(trouble="")
        clients = SimpleNamespace(source=self.source, target=SimpleNamespace(traffic=Traffic()), standby=self.standby)
        self.streams = {stream.partition: stream for stream in streams}
        watched = WatchedParts(self.streams, Progress(), Link(1000), self.memory, self.problems, self.metrics)
        self.watch = HealthWatch(CONFIG, clients, watched, self.period)

    async def ends(self, partitions):
        return dict.fromkeys(partitions, 77)

    def value(self, name):
        return getattr(self.metrics, name)._value.get()


def test_a_source_without_a_response_is_a_problem_after_some_seconds():
    setup = Setup()
    setup.source.reader.silent_s = WAIT_ALL_S + SILENT_S
    setup.watch.check(1.0)
    assert dict(setup.problems) == {}
    setup.source.reader.silent_s += 1.2
    setup.watch.check(2.0)
    assert dict(setup.problems) == {"source fetch": "no answer for 6 s"}
    setup.source.reader.silent_s = 0.0
    setup.watch.check(3.0)
    assert dict(setup.problems) == {}


def test_a_target_without_an_acknowledgement_is_a_problem():
    setup = Setup()
    setup.period.silent_s = SILENT_S + 2
    setup.watch.check(1.0)
    assert dict(setup.problems) == {"target ack": "none for 7 s"}


def test_the_group_is_named_whether_this_mirror_is_active_or_not():
    setup = Setup()
    setup.period.is_active = False
    setup.standby.trouble = "COORDINATOR_NOT_AVAILABLE"
    setup.source.reader.silent_s = 100.0
    setup.watch.check(1.0)
    assert dict(setup.problems) == {"source group": "COORDINATOR_NOT_AVAILABLE"}
    assert setup.period.ticks == 0


@pytest.mark.parametrize("is_unfenced", [False, True])
def test_the_figures_of_an_active_mirror(is_unfenced):
    setup = Setup()
    setup.memory.bytes, setup.period.sender.refusals.held.bytes = 30, 20
    setup.period.sessions.is_unfenced = is_unfenced
    setup.watch.check(1.0)
    assert [setup.value(name) for name in ("buffered", "held", "under_way", "fenced")] == [30, 20, 0, not is_unfenced]
    assert setup.period.ticks == 1


def test_the_report_has_the_partitions_and_the_problems():
    stream = new_stream(read_offset=5)
    stream.source_end = 9
    setup = Setup(stream)
    setup.problems.note("readings-0 source", "CORRUPT_MESSAGE", 1.0)
    setup.memory.bytes = 30
    report = setup.watch.report()
    assert [(one.topic, one.partition, one.source_end) for one in report.partitions] == [("readings", 0, 9)]
    assert report.troubles == ["readings-0 source: CORRUPT_MESSAGE"]
    assert report.buffered_bytes == 30


async def test_the_tasks_check_each_second_and_ask_for_ends(monkeypatch):
    monkeypatch.setattr(health_watch, "WATCH_S", 0.001)
    monkeypatch.setattr(health_watch.Lags, "not_fetched", lambda them, busy, now: [TP])
    monkeypatch.setattr("mirror.status.lag_watch.ASK_S", 0.001)
    stream = new_stream()
    setup = Setup(stream)
    tasks = [asyncio.create_task(setup.watch.run()), asyncio.create_task(setup.watch.ask_ends())]
    async with asyncio.timeout(CALL_S):
        while stream.source_end != 77 or not setup.period.ticks:  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.001)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_a_partition_that_was_dropped_is_no_stalled_one():
    stream = new_stream()
    setup = Setup(stream)
    setup.problems.note("readings-0 stalled", "none of its records", 1.0)
    setup.watch.forget(stream)
    assert dict(setup.problems) == {}
