"""Takes turns with the batches that the worker `checker` has to check: a piece of 1 MiB each, one after another.

| bound | what | why |
|---|---|---|
| one batch of a partition | others wait as for a roll, a request of each connection, which is not read then | order |
| until no waiter is left | a request that timed out or lost its connection ends its check | turns are for others |
| OPEN_MAX batches begun | the rest waits as it came, packed | a begun zstd batch keeps a window of up to 16 MiB |

Contains: whose turn it is. Does not contain: what is checked (broker/record_checks.py), threads (worker.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from edge_broker.broker.broker import Broker
from edge_broker.broker.record_checks import Checking
from edge_broker.errors import Refusal
from edge_broker.network.log_lines import log_line
from edge_broker.network.worker import Worker
from edge_broker.storage.log.partition_log import PartitionLog

OPEN_MAX = 4


class Checks:
    """The checks in progress; owned by the loop. `moved` is called for each log whose check has ended."""

    def __init__(self, broker: Broker, worker: Worker, moved: Callable[[PartitionLog], None]) -> None:
        self._broker = broker
        self._worker = worker
        self._moved = moved
        self._waiting: deque[Checking] = deque()
        self._open = 0
        self.batches = 0

    @property
    def busy(self) -> bool:
        """True while a batch is being checked."""
        return self._open > 0

    def begin(self, checking: Checking) -> None:
        """Queue a batch after the others."""
        self.batches += 1
        self._waiting.append(checking)
        self._open_more()

    def _open_more(self) -> None:
        while self._waiting and self._open < OPEN_MAX:
            self._open += 1
            self._turn(self._waiting.popleft())

    def _turn(self, checking: Checking) -> None:
        self._worker.submit(checking.turn, partial(self._piece_checked, checking))

    def _piece_checked(self, checking: Checking, finished: bool | None, error: Exception | None) -> None:
        if error is None and not finished and checking.wanted():
            self._turn(checking)
            return
        if error is not None and not isinstance(error, Refusal):
            log = checking.log
            log_line("error", "record_check_failed", topic=log.topic, partition=log.partition, error=repr(error))
        self._open -= 1
        checking.end(error)
        self._broker.checking.pop(checking.log, None)
        self._open_more()
        self._moved(checking.log)
