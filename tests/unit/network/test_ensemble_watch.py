"""When the servers of the ensemble are looked at, and what a board then says of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from edge_broker.configuration.ensemble_servers import Server
from edge_broker.network.cluster import ensemble_watch
from edge_broker.network.cluster.ensemble_watch import CALM_S, LOOK_S, SILENT_LOOK_S, EnsembleWatch


class Looks:
    """The watch with a clock of the test's own; `silent` is what each look finds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.now_s = 0, 100.0
        self.silent: dict[Server, str] | Exception = {}
        self.notes: dict[str, list[str]] = {}
        monkeypatch.setattr(ensemble_watch, "silent_servers", self._find)

    def _find(self, servers: Iterable[Server]) -> dict[Server, str]:
        assert list(servers) == [Server("a", 1), Server("b", 2)]
        self.count += 1
        if isinstance(self.silent, Exception):
            raise self.silent
        return dict(self.silent)

    def play(self, *steps: float | str) -> None:
        """Tick at each time, or call the method of this name."""

        async def run() -> None:
            loop = asyncio.get_running_loop()
            real, loop.time = loop.time, lambda: self.now_s  # type: ignore[method-assign]
            try:
                watch = EnsembleWatch("a:1,b:2/x", loop, self.notes)
                for step in steps:
                    if isinstance(step, str):
                        getattr(watch, step)()
                        continue
                    self.now_s += step
                    watch.tick()
                    if watch._looking is not None:
                        await asyncio.wait({watch._looking})
                        await asyncio.sleep(0)  # its callback
                    assert watch._looking is None
            finally:
                loop.time = real  # type: ignore[method-assign]

        asyncio.run(run())


def test_looks_come_at_their_pace_and_soon_where_a_session_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch)
    looks.play(0)
    assert looks.count == 1
    looks.play(0, LOOK_S - 1)
    assert looks.count == 2
    looks.play(0, LOOK_S)
    assert looks.count == 4
    looks.play(0, 0.5, "look_soon", 0.1, "look_soon", CALM_S)
    assert looks.count == 6, "not twice within CALM_S"


def test_a_silent_server_is_a_note_until_it_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = Looks(monkeypatch)
    looks.silent = {Server("b", 2): "connection refused"}
    looks.play(0)
    assert looks.notes == {"zookeeper": ["ZooKeeper server b:2 does not answer: connection refused"]}
    assert "zookeeper_server_silent" in capsys.readouterr().err
    looks.play(0, SILENT_LOOK_S)
    assert looks.count == 3, "until it answers, sooner than else"
    looks.silent = {}
    looks.play(0)
    assert looks.notes == {"zookeeper": []}


def test_a_look_that_fails_is_not_the_last(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    looks = Looks(monkeypatch)
    looks.silent = OSError(24, "Too many open files")
    looks.play(0, LOOK_S)
    assert looks.count == 2
    assert "zookeeper_servers_not_asked" in capsys.readouterr().err
