"""Batches whose records are checked before they may be appended: the small at once, the large by a worker.

| batch | costs of a request's allowance | beyond it |
|---|---|---|
| uncompressed | its bytes | the worker |
| compressed | twice what it unpacks to, of AT_ONCE_UNPACKED_MAX | the worker goes on where the loop stopped |

The allowance keeps the loop for 11 ms of a PC's CPU at worst, where a record is nothing but empty headers, 3 ms with
the smallest records there are, and 0.2 ms with records of 100 bytes. The Python walker takes some hundred times as
long, so that its allowance is a 64th.

The broker itself checks uncompressed records within the allowance, with check_records.

Contains: one batch's check as its request sees it. Does not contain: threads (record_check_jobs.py), rules
(protocol).
"""

from __future__ import annotations

from collections.abc import Callable

from edge_broker.compiled import compiled_walk
from edge_broker.errors import Refusal
from edge_broker.protocol.record_batch import CODEC_NONE, BatchHeader
from edge_broker.protocol.records_check import RecordsCheck, correct_max_timestamp
from edge_broker.storage.log.log_writer import Busy
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.thread_checks import runs_in

LOOP_BYTES_MAX = 1_310_720  # of one request: what clients send by default, 1 MiB, and its overhead
LOOP_BYTES_MAX_PYTHON = LOOP_BYTES_MAX // 64
AT_ONCE_UNPACKED_MAX = 512 * 1024  # readings that fill a batch.size of 64 KB: a turn of the worker costs as much again
UNPACKING_FACTOR = 2
REFUSAL_BYTES = LOOP_BYTES_MAX // 4  # what a refusal costs of the allowance, with the list of bad records


def loop_bytes_max() -> int:
    """A request's allowance for checks on the loop, by the walker that there is."""
    return LOOP_BYTES_MAX if compiled_walk() is not None else LOOP_BYTES_MAX_PYTHON


class Checking:
    """One batch's check; `done` on the loop once `result` says how it ended. `records` is a copy for the worker.

    `wanted` says whether a request still waits for it.
    """

    __slots__ = ("_check", "cost", "done", "error", "header", "log", "records", "wanted")

    def __init__(self, log: PartitionLog, header: BatchHeader) -> None:
        self.log = log
        self.header = header
        self.records: memoryview | None = None
        self.cost = 0
        self.done = False
        self.error: Exception | None = None
        self.wanted: Callable[[], bool] = lambda: True
        self._check: RecordsCheck | None = None

    @classmethod
    def of(cls, log: PartitionLog, records: memoryview, header: BatchHeader, allowance: int) -> Checking:
        """Check a batch that is not checked at once, or begin to: `done` says which. Refusal as RecordsCheck."""
        checking = cls(log, header)
        keys_required, times_checked = log.settings.compacts, not log.settings.log_append_time
        copy = memoryview(bytearray(records))
        check = RecordsCheck(copy, header, keys_required=keys_required, times_checked=times_checked)
        at_once = 0 if header.codec == CODEC_NONE else min(AT_ONCE_UNPACKED_MAX, allowance // UNPACKING_FACTOR)
        if len(records) <= at_once and check.run(at_once, on_loop=True):
            correct_max_timestamp(records, header, check.max_timestamp)
            checking.done = True
        else:
            checking.records, checking._check = copy, check
        checking.cost = UNPACKING_FACTOR * check.walked_bytes
        return checking

    @runs_in()
    def turn(self) -> bool:
        """Check one more piece; True when that was the last. Refusal as RecordsCheck."""
        assert self._check is not None
        assert self.records is not None
        finished = self._check.run()
        if finished:
            correct_max_timestamp(self.records, self.header, self._check.max_timestamp)
        return finished

    def end(self, error: Exception | None) -> None:
        """Tell the waiting requests how it ended; a Refusal's traceback is not kept, as its frames hold windows."""
        self._check = None
        self.error = error.without_frames() if isinstance(error, Refusal) else error
        self.done = True

    def result(self) -> BatchHeader:
        """The header of a checked batch; raises what the check ended with, CheckUnderWay until then."""
        if not self.done:
            raise CheckUnderWay(self)
        if isinstance(self.error, Refusal):
            raise self.error.without_frames()  # raised itself, it would keep this frame, and that it
        if self.error is not None:
            raise self.error
        return self.header


class CheckUnderWay(Busy):
    """The records are being checked: ask again when the log moves, with `checking`."""

    def __init__(self, checking: Checking) -> None:
        super().__init__()
        self.checking = checking
