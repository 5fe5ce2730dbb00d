"""The ledger of the running broker: a worker thread hands losses to the loop and waits until they are synced.

| moment | what `write` does |
|---|---|
| the broker serves | waits for the append and the sync that covers it |
| the loop does not answer | StorageFault after WAIT_S |
| the broker stops, answers and syncs what is in progress | the same as while it serves |
| the drain is over | StorageFault at once, also for who waits already: no thread waits for a loop that joins it |

Only the worker `files` may write: `disk` does the sync that is waited for, the loop the append.

Does not contain: which losses there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from edge_broker.broker.operations.loss_writes import WRITE_MS_MAX, write_losses
from edge_broker.errors import StorageFault
from edge_broker.network.dispatch.dispatcher import Dispatcher
from edge_broker.network.worker import Answer
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.metadata.loss_records import Loss
from edge_broker.thread_checks import runs_in

WAIT_S = WRITE_MS_MAX / 1000 + 5


class LoopLedger:
    """A Ledger whose `write` is for worker threads; `log` is the ledger's partition."""

    def __init__(self, loop: asyncio.AbstractEventLoop, dispatcher: Dispatcher, log: PartitionLog) -> None:
        self._loop = loop
        self._dispatcher = dispatcher
        self._log = log
        self._waiting: set[Answer] = set()
        self._stopped = False

    @runs_in("files")
    def write(self, losses: Sequence[Loss]) -> None:
        """Return when the losses are synced; StorageFault: they are not, do not act."""
        answer = Answer()
        self._waiting.add(answer)  # before the look at `_stopped`: one of the two sees the other
        try:
            if self._stopped:
                raise self._stopping()
            self._loop.call_soon_threadsafe(self._begin, list(losses), answer)
            answer.wait(WAIT_S)
        except TimeoutError:
            reason = f"the ledger was not written within {WAIT_S:.0f} s"
            raise StorageFault(self._log.directory, self._log.log_end_offset, reason) from None
        finally:
            self._waiting.discard(answer)

    def stop(self) -> None:
        """Release all waiters; the loop is about to join the workers. Loop."""
        self._stopped = True
        for answer in list(self._waiting):
            answer.put(self._stopping())

    def _begin(self, losses: list[Loss], answer: Answer) -> None:
        self._dispatcher.start(lambda: write_losses(self._dispatcher.broker, self._log, losses, answer.put))

    def _stopping(self) -> StorageFault:
        return StorageFault(self._log.directory, self._log.log_end_offset, "the broker stops; nothing was written")
