"""Compaction in the running broker: short pieces in the worker `files`, with rests in between.

The GIL lets one thread run at a time, so a piece takes 2 ms of CPU, sized by what the last ones took, and a rest
follows that is as long. Compaction takes half of one core at most; others wait for one piece.

Contains: when the next piece runs. Does not contain: what is cleaned (storage/maintenance/log_cleaner.py).
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable
from typing import NamedTuple

from edge_broker.broker.broker import Broker
from edge_broker.network.dispatch.dispatcher import Dispatcher
from edge_broker.network.log_lines import log_line
from edge_broker.network.worker import Worker
from edge_broker.thread_checks import runs_in

PIECE_S = 0.002
BREATH_S = 0.0005  # amid a large batch, which is one piece however many records it has
REST_MIN_S = 0.001
WORK_MIN, WORK_MAX = 50, 20_000


class _Piece(NamedTuple):
    more: bool
    cpu_s: float
    moved_bytes: int


async def keep_clean(broker: Broker, dispatcher: Dispatcher, worker: Worker) -> None:
    """Compact for ever: look for work every log.cleaner.backoff.ms, then do it slice by slice."""
    backoff_s = broker.config.integer("log.cleaner.backoff.ms") / 1000
    bytes_per_s = broker.config.integer("log.cleaner.io.max.bytes.per.second")
    broker.cleaner.breathe = lambda: time.sleep(BREATH_S)
    work_max = WORK_MIN
    while True:
        await asyncio.sleep(backoff_s)
        more = True
        while more:
            piece = await _run(worker, lambda work=work_max: _piece(broker, work))  # type: ignore[misc]
            _report(broker, dispatcher)
            more = piece.more
            work_max = next_work(work_max, piece.cpu_s)
            await asyncio.sleep(max(piece.cpu_s, piece.moved_bytes / bytes_per_s, REST_MIN_S))


def next_work(work: int, cpu_s: float) -> int:
    """How much the next piece may do so that it takes about `PIECE_S`, given what the last one did and took."""
    wanted = work * PIECE_S / max(cpu_s, PIECE_S / 4)
    return min(max(round((work + wanted) / 2), WORK_MIN), WORK_MAX)


@runs_in()
def _piece(broker: Broker, work_max: int) -> _Piece:
    """Clean a little; a bug ends this pass and leaves its trace."""
    cleaner = broker.cleaner
    begin_s, begin_bytes = time.thread_time(), cleaner.bytes_read + cleaner.bytes_written
    try:
        more = cleaner.step(broker.time.now(), work_max)
    except Exception as error:  # noqa: BLE001 - whatever it is, the old segments are as they were
        log_line("error", "compaction_failed", trace="".join(traceback.format_exception(error)))
        cleaner.give_up()
        more = True
    return _Piece(more, time.thread_time() - begin_s, cleaner.bytes_read + cleaner.bytes_written - begin_bytes)


async def _run(worker: Worker, work: Callable[[], _Piece]) -> _Piece:
    done: asyncio.Future[_Piece] = asyncio.get_running_loop().create_future()

    def over(result: _Piece, error: Exception | None) -> None:
        if done.done():  # the broker stops
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)

    worker.submit(work, over, background=True)
    return await done


def _report(broker: Broker, dispatcher: Dispatcher) -> None:
    """Log what was done and what went wrong; tell those who wait for a log that failed."""
    cleaner = broker.cleaner
    while cleaner.finished:
        done = cleaner.finished.pop(0)
        log_line("info", "partition_compacted", **done._asdict())
    while cleaner.notes:
        broker.effects.note(cleaner.notes.pop(0))
    while cleaner.failed:
        broker.effects.offline([cleaner.failed.pop(0)])
    dispatcher.apply()
