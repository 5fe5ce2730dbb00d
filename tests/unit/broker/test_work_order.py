"""Who waits for a worker comes before what runs in the background, and that comes in pieces; by order, not by time."""

from __future__ import annotations

import asyncio
import threading
import weakref
from typing import Any

import pytest

from edge_broker import app
from edge_broker.broker.outcomes import Outcome, Reply, RunInWorker
from edge_broker.errors import StorageFault
from edge_broker.network.worker import AHEAD_MAX, Worker
from edge_broker.protocol.api import METADATA
from edge_broker.storage.retention import segment_removal
from edge_broker.testing.site import Site
from tests.support.storage import batch, fill
from tests.unit.broker.test_topics import metadata


async def in_order(submitted: list[tuple[str, bool]]) -> list[str]:
    """In which order a worker does jobs that came while it was busy."""
    worker, began, go = Worker("test", asyncio.get_running_loop()), threading.Event(), threading.Event()
    found: list[str] = []
    worker.submit(lambda: (began.set(), go.wait(10)), lambda _result, _error: None)
    began.wait(10)
    for name, background in submitted:
        worker.submit(lambda name=name: found.append(name), lambda _result, _error: None, background=background)  # type: ignore[misc]
    go.set()
    await worker.turn()
    worker.close()
    return found


async def test_what_somebody_waits_for_comes_first_each_in_its_order() -> None:
    submitted = [("a", True), ("1", False), ("b", True), ("2", False), ("c", True)]
    assert await in_order(submitted) == ["1", "2", "a", "b", "c"]


async def test_the_background_has_its_turn_however_much_is_waited_for() -> None:
    submitted = [("a", True), ("b", True), *((str(number), False) for number in range(3 * AHEAD_MAX))]
    found = await in_order(submitted)
    assert [found.index(one) for one in "ab"] == [AHEAD_MAX - 1, 2 * AHEAD_MAX], "the one that kept it busy counts"
    assert len(found) == len(submitted)


async def test_a_worker_ends_behind_all_that_is_queued() -> None:
    worker = Worker("test", asyncio.get_running_loop())
    found: list[int] = []
    for number in range(20):
        worker.submit(lambda number=number: found.append(number), lambda _result, _error: None, background=number < 10)  # type: ignore[misc]
    worker.close()
    assert sorted(found) == list(range(20))


@pytest.mark.parametrize("fails", [False, True])
async def test_a_worker_that_waits_holds_nothing_of_its_last_job(fails: bool) -> None:
    """A write holds its file: what compaction replaced would stay on the disk until the next write."""
    loop = asyncio.get_running_loop()
    worker, ended = Worker("test", loop), loop.create_future()

    class File:
        def write(self) -> File:
            if fails:
                raise OSError(self)
            return self

    def end(_result: Any, _error: Exception | None) -> None:
        ended.set_result(None)

    file, let_go = File(), asyncio.Event()
    weakref.finalize(file, loop.call_soon_threadsafe, let_go.set)
    worker.submit(file.write, end)
    del file
    await ended
    async with asyncio.timeout(10):
        await let_go.wait()
    worker.close()


def chore(work: Any) -> RunInWorker:
    return app._files(work)


def test_making_a_topic_waits_for_one_job_of_the_background_at_most() -> None:
    site = Site()
    ran: list[str] = []
    for name in ("checkpoint", "memory"):
        site.dispatcher.start(lambda name=name: chore(lambda: ran.append(name)))  # type: ignore[misc]
    site.dispatcher.start(site.broker.space.check)
    site.dispatcher.start(app._Retention(site.broker).start)
    site.files.work()  # the one under way when the request comes
    client = site.client()
    client.send(METADATA, metadata("t"))
    site.files.step()
    assert client.answer().topics[0].error_code == 0
    assert ran == ["checkpoint"]
    site.run_until_idle()
    assert ran == ["checkpoint", "memory"]


def test_retention_comes_in_pieces_and_who_waits_runs_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "LOGS_A_PIECE", 10)
    site = Site({"log.retention.ms": 1000})
    logs = site.topic(partitions=25, config={"segment.bytes": "4096"})
    for log in logs[:3]:
        fill(log, 3, 2500)
    site.loop.advance(10_000)
    retention = app._Retention(site.broker)
    site.dispatcher.start(retention.start)
    site.dispatcher.start(retention.start)  # the interval is over again: the one under way goes on
    while site.disk_worker:
        site.disk_worker.step()  # the segments that are written to are too old as well
    site.files.step()
    assert [len(log.segments) for log in logs[:3]] == [1, 4, 4]
    client = site.client()
    client.send(METADATA, metadata("new"))
    site.files.step()
    assert client.answer().topics[0].error_code == 0
    assert [len(log.segments) for log in logs[:3]] == [1, 4, 4]
    before = site.files.submitted
    site.run_until_idle()
    assert [len(log.segments) for log in logs[:3]] == [1, 1, 1]
    assert site.files.submitted - before <= 5


@pytest.mark.parametrize("error", [StorageFault("x", 0, "broken"), RuntimeError("a bug")])
def test_retention_that_fails_is_begun_anew(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site({"log.retention.ms": 1000})
    (log,) = site.topic(config={"segment.bytes": "4096"})
    fill(log, 3, 2500)
    site.loop.advance(10_000)
    retention = app._Retention(site.broker)

    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(segment_removal, "delete_expired", fail)
        site.dispatcher.start(retention.start)
        site.run_until_idle()
    site.dispatcher.start(retention.start)
    site.run_until_idle()
    assert len(log.segments) == 1


def test_a_chore_that_nobody_waits_for_says_so() -> None:
    assert chore(lambda: None).background
    outcome: Outcome = Site().broker.space.check()
    assert isinstance(outcome, RunInWorker)
    assert outcome.background
    assert not RunInWorker(batch, lambda _: Reply(None), lambda _: Reply(None)).background
