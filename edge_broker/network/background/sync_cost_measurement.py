"""Measures the card at the first start, one sample at a time between the other jobs of the worker `files`.

Contains: when. Does not contain: what is measured and how it is kept (storage/files/sync_cost.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from edge_broker.broker.broker import Broker
from edge_broker.broker.outcomes import Outcome, Reply, RunInWorker
from edge_broker.errors import StorageFault
from edge_broker.network.dispatch.dispatcher import Dispatcher
from edge_broker.network.log_lines import log_line
from edge_broker.storage.files.atomic_files import fault_of
from edge_broker.storage.files.sync_cost import Card, describe, measure
from edge_broker.storage.log_store import LogStore

DELAY_S = 5.0  # a board that boots has other things to do


async def measure_card(broker: Broker, dispatcher: Dispatcher, delay_s: float = DELAY_S) -> None:
    """Measure what a sync costs here and keep it, unless that was done before."""
    store = broker.store
    if store.group_commit.card is not None:
        return
    await asyncio.sleep(delay_s)
    steps = measure(store.fs, store.data_dir, broker.clock.seconds)
    try:
        while (card := await _step(dispatcher, store, steps)) is None:
            pass
    except StorageFault as fault:
        log_line("warning", "sync_cost_not_measured", fault=fault)
        return
    store.group_commit.card = card
    for line in describe(card):
        log_line("info", "sync_cost_measured", text=line)


async def _step(dispatcher: Dispatcher, store: LogStore, steps: Iterator[Card | None]) -> Card | None:
    done: asyncio.Future[Card | None] = asyncio.get_running_loop().create_future()

    def work() -> Card | None:
        try:
            card = next(steps)
        except OSError as error:
            raise fault_of(error, store.data_dir, 0) from error
        if card is not None:
            store.directory.keep_card(card)
        return card

    def sync_cost_measured(card: Card | None) -> Outcome:
        if not done.done():  # else the broker stops
            done.set_result(card)
        return Reply(None)

    def measuring_failed(error: Exception) -> Outcome:
        if not done.done():
            done.set_exception(error)
        return Reply(None)

    dispatcher.start(lambda: RunInWorker(work, sync_cost_measured, measuring_failed, background=True))
    return await done
