"""A checkpoint that cannot be written is logged when the fault begins and when it ends, not by each write."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Iterator

import pytest

from edge_broker.broker.outcomes import Outcome
from edge_broker.network.background.checkpoint_loop import SUM_S, CheckpointLoop
from edge_broker.testing.disk import Fault
from edge_broker.testing.site import Site, make_topic
from tests.support.storage import fill
from tests.support.waiting import CALL_S

CHECKPOINT = "recovery-point-offset-checkpoint"


def no_write(number: int) -> Fault:
    """Return a fault by which no write of the checkpoint succeeds."""

    def fault(step: str, path: str, _size: int) -> None:
        if step == "write" and CHECKPOINT in path:
            raise OSError(number, os.strerror(number), path)

    return fault


class Play:
    """A broker whose disk fails as told, and which has something new to write down each time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.site = Site()
        self.log = make_topic(self.site.store, "t").partitions[0]
        self.loop = CheckpointLoop(self.site.broker, self.site.dispatcher, lambda: self.now_s)
        self.write(2, error=None)  # both files exist
        self.now_s = 0.0

    def write(self, times: int = 1, *, error: int | None = errno.ENOSPC) -> None:
        for _ in range(times):
            self.site.disk.fault = None
            fill(self.log, 1)
            self.site.disk.fault = None if error is None else no_write(error)
            self.site.dispatcher.start(self.loop.write)
            self.site.run_until_idle()
            self.now_s += 10.0


@pytest.fixture
def play() -> Iterator[Play]:
    play = Play()
    yield play
    play.site.disk.fault = None


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Callable[[], list[str]]:
    """Return the lines since the last call, without the time."""
    capsys.readouterr()
    return lambda: [line.split(" edge-broker ", 1)[1] for line in capsys.readouterr().err.splitlines()]


def test_a_full_disk_is_one_line_and_a_sum_once_it_has_room(play: Play, lines: Callable[[], list[str]]) -> None:
    play.write(100)
    (line,) = lines()
    assert line.startswith("job_failed error=")
    assert CHECKPOINT in line
    play.write(error=None)
    assert lines() == ["lines_summed of=job_failed left_out=99 seconds=1000.0"]
    play.write(3, error=None)
    assert lines() == []


def test_a_fault_that_comes_again_is_logged_again(play: Play, lines: Callable[[], list[str]]) -> None:
    for _ in range(2):
        play.write()
        play.write(error=None)
    assert [line.split()[0] for line in lines()] == ["job_failed", "job_failed"]


def test_another_error_is_logged_at_once(play: Play, lines: Callable[[], list[str]]) -> None:
    play.write(2)
    play.write(2, error=errno.EIO)
    said = lines()
    assert [line.split()[0] for line in said] == ["job_failed", "lines_summed", "job_failed"]
    assert said[0] != said[2]


def test_a_fault_that_lasts_is_summed_once_an_hour(play: Play, lines: Callable[[], list[str]]) -> None:
    play.write(1 + 2 * int(SUM_S / 10))
    assert lines()[1:] == [f"lines_summed of=job_failed left_out=360 seconds={SUM_S}"] * 2


async def test_a_broker_that_stops_sums_up(play: Play, lines: Callable[[], list[str]]) -> None:
    play.write(3)
    lines()
    task = asyncio.create_task(play.loop.run(CALL_S))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert lines() == ["lines_summed of=job_failed left_out=2 seconds=30.0"]


async def test_it_is_written_each_period() -> None:
    started: list[Callable[[], Outcome]] = []
    play, begun = Play(), asyncio.Event()

    class Jobs:
        def start(self, step: Callable[[], Outcome]) -> None:
            started.append(step)
            begun.set()

    loop = CheckpointLoop(play.site.broker, Jobs(), lambda: 0.0)
    task = asyncio.create_task(loop.run(0.001))
    await asyncio.wait_for(begun.wait(), CALL_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert set(started) == {loop.write}
