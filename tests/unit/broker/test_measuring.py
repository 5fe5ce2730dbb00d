"""The card is measured once, in the worker `files`, kept, and shown."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from edge_broker.app import log_settings
from edge_broker.broker.broker import Broker
from edge_broker.broker.outcomes import WorkerName
from edge_broker.clock import SystemClock
from edge_broker.configuration.config import BrokerConfig, Endpoint
from edge_broker.configuration.listeners import plaintext
from edge_broker.handlers import HANDLERS
from edge_broker.network.background.metrics import metrics_text
from edge_broker.network.background.sync_cost_measurement import measure_card
from edge_broker.network.dispatch.dispatcher import Dispatcher
from edge_broker.network.server.listener_server import Server
from edge_broker.network.worker import Worker
from edge_broker.storage.files.filesystem import Disk
from edge_broker.storage.files.sync_cost import read_card
from edge_broker.storage.log_store import LogStore
from tests.support.waiting import CALL_S


class Running:
    """A dispatcher with real workers over a real directory."""

    def __init__(self, data_dir: str, disk: Disk) -> None:
        config, clock, loop = BrokerConfig({}), SystemClock(), asyncio.get_running_loop()
        self.store = LogStore.open(disk, data_dir, log_settings(config), clock.refresh(), clock.new_uuid)
        self.broker = Broker(config, self.store, clock, [plaintext(Endpoint("127.0.0.1", 0))])
        self.workers = {name: Worker(name, loop) for name in get_args(WorkerName)}
        self.dispatcher = Dispatcher(self.broker, HANDLERS, loop, self.workers)
        self.server = Server(config, self.dispatcher, loop)

    async def measure(self) -> None:
        try:
            await asyncio.wait_for(measure_card(self.broker, self.dispatcher, 0.0), CALL_S)
        finally:
            for worker in self.workers.values():
                worker.close()
            self.store.close()


async def test_a_card_is_measured_once_kept_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    running = Running(str(tmp_path / "d"), Disk())
    await running.measure()
    card = running.store.group_commit.card
    assert card is not None
    assert read_card(Disk(), running.store.data_dir) == card
    text = metrics_text(running.broker, running.dispatcher, running.server, 0)
    assert f'edge_broker_card_sync_seconds{{bytes="4096",quantile="0.5"}} {card.costs[0].p50_us / 1e6}\n' in text
    assert 'edge_broker_card_round_seconds{files="10",way="each"}' in text
    assert "write and fdatasync of 4 KiB" in capsys.readouterr().err
    kept = (tmp_path / "d" / "card").stat().st_mtime_ns
    await Running(str(tmp_path / "d"), Disk()).measure()
    assert (tmp_path / "d" / "card").stat().st_mtime_ns == kept
    assert list((tmp_path / "d").glob(".*.new")) == []


class Full(Disk):
    """A disk on which nothing more can be made."""

    def create(self, path: str) -> Iterator[None]:  # type: ignore[override]
        if "/.card-" in path:
            raise OSError(28, "No space left on device", path)
        return super().create(path)  # type: ignore[return-value]


async def test_a_card_that_cannot_be_measured_is_said_and_harms_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running = Running(str(tmp_path / "d"), Full())
    await running.measure()
    assert running.store.group_commit.card is None
    assert "sync_cost_not_measured" in capsys.readouterr().err
