"""The ledger of a running broker: real loop, real threads, real disk."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, get_args

import pytest

from drupelet.ledger import LEDGER_TOPIC
from edge_broker.app import log_settings
from edge_broker.broker.broker import Broker
from edge_broker.broker.outcomes import WorkerName
from edge_broker.clock import SystemClock
from edge_broker.configuration.config import BrokerConfig, Endpoint
from edge_broker.configuration.listeners import plaintext
from edge_broker.errors import StorageFault
from edge_broker.handlers import HANDLERS
from edge_broker.network.dispatch.dispatcher import Dispatcher
from edge_broker.network.dispatch.loop_ledger import LoopLedger
from edge_broker.network.worker import Worker
from edge_broker.protocol.record_batch import records_of
from edge_broker.storage.files.filesystem import Disk
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.metadata.loss_records import Loss
from tests.support.storage import read_all

DEADLINE_S = 80


class Running:
    """A broker's loop, workers and ledger, without a listener."""

    def __init__(self, path: Path) -> None:
        loop, config, clock = asyncio.get_running_loop(), BrokerConfig(), SystemClock()
        self.store = LogStore.open(Disk(), str(path), log_settings(config), clock.refresh(), uuid.uuid4)
        self.log = self.store.topics[LEDGER_TOPIC].partitions[0]
        self.workers: dict[WorkerName, Worker] = {name: Worker(name, loop) for name in get_args(WorkerName)}
        broker = Broker(config, self.store, clock, [plaintext(Endpoint("localhost", 0))])
        self.dispatcher = Dispatcher(broker, HANDLERS, loop, self.workers)
        self.ledger = LoopLedger(loop, self.dispatcher, self.log)
        self.store.use_ledger(self.ledger)

    async def write(self, *offsets: int) -> None:
        """Write losses from the worker `files`; raises what came out."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def ended(_result: Any, error: Exception | None) -> None:
            done.set_exception(error) if error else done.set_result(None)

        losses = [Loss("evicted", "t", "id", 0, offset, offset + 1, 1, 70) for offset in offsets]
        self.workers["files"].submit(lambda: self.ledger.write(losses), ended)
        await done

    def offsets(self) -> list[int]:
        """The first offsets of the losses that are shown."""
        batches = [memoryview(one) for one in read_all(self.log, 1 << 20)]
        return [json.loads(bytes(record.value or b""))["first_offset"] for one in batches for record in records_of(one)]


@pytest.fixture
def run(tmp_path: Path) -> Callable[[Callable[[Running], Coroutine[Any, Any, None]]], None]:
    """Run a coroutine with a broker and end its threads whatever comes."""

    async def whole(test: Callable[[Running], Coroutine[Any, Any, None]]) -> None:
        running = Running(tmp_path / "data")
        try:
            async with asyncio.timeout(DEADLINE_S):
                await test(running)
        finally:
            running.ledger.stop()
            for worker in running.workers.values():
                worker.close()
            running.store.close()

    return lambda test: asyncio.run(whole(test))


def test_a_worker_goes_on_once_its_losses_are_synced(run) -> None:
    async def test(running: Running) -> None:
        await running.write(1, 2)
        assert running.log.synced_end.offset == 2
        await running.write(*range(1000, 1500))
        assert running.log.synced_end.offset == 502
        assert running.offsets() == [1, 2, *range(1000, 1500)]

    run(test)


def test_losses_go_on_through_a_roll(run) -> None:
    async def test(running: Running) -> None:
        running.log.settings.segment_bytes = 4096
        for offset in range(20):
            await running.write(offset)
        assert len(running.log.segments) > 1
        assert running.offsets() == list(range(20))

    run(test)


def test_a_stop_frees_the_worker_that_waits_for_a_disk_that_hangs(run) -> None:
    async def test(running: Running) -> None:
        hang = threading.Event()
        running.workers["disk"].submit(hang.wait, lambda _result, _error: None)
        writing = asyncio.ensure_future(running.write(7))
        while running.log.log_end_offset == 0:  # noqa: ASYNC110 - a log tells nobody but its waiters
            await asyncio.sleep(0.01)
        running.ledger.stop()
        with pytest.raises(StorageFault, match="the broker stops"):
            await writing
        hang.set()
        with pytest.raises(StorageFault, match="the broker stops"):
            await running.write(8)

    run(test)


def test_a_ledger_that_is_offline_says_so(run) -> None:
    async def test(running: Running) -> None:
        running.log.fail(StorageFault("/card/file", 9, "broken"))
        with pytest.raises(StorageFault, match="broken"):
            await running.write(7)

    run(test)
