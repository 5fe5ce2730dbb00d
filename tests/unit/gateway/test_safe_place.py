"""The place of a source that can be read again, and its state file.

Invariants:
- the place moves over what is acknowledged without a gap, in whatever order that comes;
- the file holds the last place when keeping it ends, and is never written by two at once;
- a place that cannot be saved is a sentence until it can.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway import state
from gateway.sources import acked_position
from gateway.sources.acked_position import SafePlace
from tests.support.tasks import running_task
from tests.support.waiting import until

SAVE = state.save


def place_in(path: Path, saved: int | None = None) -> SafePlace[int]:
    return SafePlace(path, "the place", lambda place: {"place": place}, 0, saved)


@asynccontextmanager
async def kept(place: SafePlace[int]) -> AsyncIterator[None]:
    """As a source keeps it: until its task is cancelled."""
    started = asyncio.Event()

    async def run() -> None:
        async with place.keep_saved():
            started.set()
            await asyncio.Event().wait()

    async with running_task(run()):
        await started.wait()
        yield


async def test_the_place_moves_over_what_is_acknowledged_without_a_gap(tmp_path: Path) -> None:
    path = tmp_path / "place.json"
    place = place_in(path)
    first, loss, third, _ = [place.handed_over(after) for after in (0, None, 3, 4)]
    async with kept(place):
        third()
        first()
        await until(lambda: state.load(path) == {"place": 0})
        loss()
        await until(lambda: state.load(path) == {"place": 3})
    assert not place.all_acked


async def test_what_was_acknowledged_last_is_saved_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "place.json"
    place = place_in(path)
    async with kept(place):
        place.handed_over(1)()
    assert (state.load(path), place.all_acked) == ({"place": 1}, True)


async def test_no_two_threads_write_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop cancels whoever waits for the thread, not the thread."""
    place = place_in(tmp_path / "place.json")
    writing: list[object] = []
    most, let_go, saved = 0, threading.Event(), []

    def slow_save(path: Path, content: dict[str, Any]) -> None:
        nonlocal most
        writing.append(content)
        most = max(most, len(writing))
        assert let_go.wait(60)
        writing.remove(content)
        saved.append(content)

    monkeypatch.setattr(acked_position.state, "save", slow_save)
    async with kept(place):
        place.handed_over(1)()
        await until(lambda: writing)
        place.handed_over(2)()
        asyncio.get_running_loop().call_later(0.1, let_go.set)  # while the stop waits
    assert (saved, most) == ([{"place": 1}, {"place": 2}], 1)


async def test_a_place_that_cannot_be_saved_is_told_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(acked_position, "SAVE_RETRY_S", 0.001)
    tries = []
    monkeypatch.setattr(acked_position.state, "save", lambda path, content: tries.append(1) or SAVE(path, content))
    (tmp_path / "state").write_text("no directory")
    path = tmp_path / "state" / "place.json"
    place = place_in(path)
    async with kept(place):
        place.handed_over(1)()
        await until(lambda: len(tries) > 3)
        assert place.trouble == f"the place cannot be saved in {path} (File exists)"
        (tmp_path / "state").unlink()
        await until(lambda: place.trouble is None)
    assert state.load(path) == {"place": 1}
    assert [record.message for record in caplog.records] == ["place_unsaved"]
