"""Losses into `__edge_ledger` while the loop runs: appended like a client's records, answered after the sync.

Gateway and mirror produce to the same topic, so that only the loop may append to it.

Does not contain: which losses there are, who waits and how (network/dispatch/loop_ledger.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edge_broker.broker.broker import Broker
from edge_broker.broker.operations.durable_write import Write, write_all
from edge_broker.broker.outcomes import Outcome, Reply
from edge_broker.errors import StorageFault
from edge_broker.storage.log.partition_log import PartitionLog
from edge_broker.storage.loss.startup_ledger import ledger_batches
from edge_broker.storage.metadata.loss_records import Loss

WRITE_MS_MAX = 60_000  # cards hang for seconds; a removal is retried later


def write_losses(
    broker: Broker, log: PartitionLog, losses: Sequence[Loss], done: Callable[[StorageFault | None], None]
) -> Outcome:
    """Append the losses and call `done` once, on the loop: with None after the sync, else with why they are not."""
    return _write(broker, log, list(ledger_batches(losses, broker.time.now(), str(broker.node_id))), done)


def _write(
    broker: Broker, log: PartitionLog, batches: list[memoryview], done: Callable[[StorageFault | None], None]
) -> Outcome:
    """One batch after the other; the first that fails is the last."""
    write = Write(log, batches.pop(0))

    def write_completed() -> Outcome:
        if write.error is not None:
            reason = f"the ledger takes nothing: {write.error}"
            done(
                log.fault.without_frames()
                if log.fault is not None
                else StorageFault(log.directory, log.log_end_offset, reason)
            )
        elif batches:
            return _write(broker, log, batches, done)
        else:
            done(None)
        return Reply(None)

    return write_all(broker, [write], write_completed, WRITE_MS_MAX)
