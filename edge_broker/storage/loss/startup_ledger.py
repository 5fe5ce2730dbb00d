"""The broker's own writing of `__edge_ledger`: straight into the log, in the caller's thread.

Used before the loop runs, in simulations and where one thread owns the log; while the loop runs, it appends
(network/dispatch/loop_ledger.py).

Contains: what a ledger topic goes by, records as a batch, the direct way. Does not contain: which losses there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from drupelet.ledger import LEDGER_CONFIG
from edge_broker.configuration.settings import LogSettings
from edge_broker.errors import Refusal, StorageFault
from edge_broker.protocol.record_batch import build_batch, check_batch
from edge_broker.storage.log import single_node_watermark
from edge_broker.storage.log.log_writer import RollDue
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.metadata.loss_records import Loss, LossContext, encode_loss
from edge_broker.storage.metadata.topic_config import topic_settings

if TYPE_CHECKING:
    from edge_broker.storage.files.data_age import Now

SEGMENT_BYTES = 1 << 20
LOSSES_PER_BATCH = 200
BATCH_BYTES_MAX = 1 << 20


def ledger_settings(defaults: LogSettings) -> LogSettings:
    """The settings of `__edge_ledger`, whatever it was made with: never compacted, never expired, always synced."""
    settings = topic_settings(defaults, LEDGER_CONFIG)
    settings.cleanup_policy = "delete"
    settings.retention_ms = settings.retention_bytes = -1
    settings.flush_ms = 1000
    settings.segment_bytes = SEGMENT_BYTES
    settings.segment_ms = 1 << 62
    settings.required_groups = ""
    return settings


def ledger_batches(losses: Sequence[Loss], now: Now, node: str) -> Iterator[memoryview]:
    """The records of losses that are noticed now, as writable batches of up to 200."""
    noticed = LossContext(now.wall_ms, node, now.trusted, now.boot_id)
    for first in range(0, len(losses), LOSSES_PER_BATCH):
        records = [encode_loss(loss, noticed) for loss in losses[first : first + LOSSES_PER_BATCH]]
        yield memoryview(bytearray(build_batch(records, timestamp_ms=now.wall_ms)))


class DirectLedger:
    """Appends, rolls and syncs in the caller's thread; only where nothing else appends meanwhile."""

    def __init__(self, log: PartitionLog, now: Callable[[], Now], node: str) -> None:
        self.log = log
        self.node = node
        self._now = now

    def write(self, losses: Sequence[Loss]) -> None:
        """Return when the losses are synced; StorageFault: they are not, do not act."""
        log, now = self.log, self._now()
        for batch in ledger_batches(losses, now, self.node):
            try:
                self._append(batch, now)
            except (Refusal, RollDue) as error:
                raise StorageFault(log.directory, log.log_end_offset, f"the ledger takes nothing: {error}") from error
        flush = log.writer.begin_flush()
        if flush is not None:
            try:
                flush.run()
            except StorageFault as fault:
                log.fail(fault)
                raise
            log.writer.finish_flush(flush)
            single_node_watermark.advance_high_watermark(log.state)

    def _append(self, batch: memoryview, now: Now) -> None:
        header = check_batch(batch, BATCH_BYTES_MAX)
        try:
            self.log.writer.append(batch, header, now)
        except RollDue:
            self.log.roller.roll()
            self.log.writer.end_roll()
            self.log.writer.append(batch, header, now)


class EarlyLedger:
    """Keeps the losses of the ledger's own partition while that is being opened."""

    def __init__(self) -> None:
        self.losses: list[Loss] = []

    def write(self, losses: Sequence[Loss]) -> None:
        """Keep them until the ledger is open."""
        self.losses.extend(losses)
