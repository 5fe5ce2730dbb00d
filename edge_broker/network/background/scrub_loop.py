"""Scrubbing in the running broker: one piece at a time in the worker `files`, at the configured pace.

Contains: when the next piece is read. Does not contain: what is read, what is done about damage (scrubber.py).
"""

from __future__ import annotations

import asyncio
import traceback

from edge_broker.broker.broker import Broker
from edge_broker.network.log_lines import log_line
from edge_broker.network.worker import Worker

ROUND_PAUSE_S = 60.0


async def keep_scrubbing(broker: Broker, worker: Worker) -> None:
    """Read closed segments for ever, edge.scrub.bytes.per.second at most; nothing when that is 0."""
    bytes_per_s = broker.config.integer("edge.scrub.bytes.per.second")
    while bytes_per_s:
        size = await _piece(broker, worker)
        _report(broker)
        await asyncio.sleep(size / bytes_per_s if size else ROUND_PAUSE_S)


async def _piece(broker: Broker, worker: Worker) -> int:
    done: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def over(size: int, error: Exception | None) -> None:
        if error is not None:
            log_line("error", "scrub_failed", trace="".join(traceback.format_exception(error)))
        if not done.done():  # else the broker stops
            done.set_result(size if error is None else 0)

    worker.submit(broker.scrubber.step, over, background=True)
    return await done


def _report(broker: Broker) -> None:
    """Log what was found."""
    while broker.scrubber.notes:
        log_line("warning", "scrub_finished", note=broker.scrubber.notes.pop(0))
