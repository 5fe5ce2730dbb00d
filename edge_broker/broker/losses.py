"""Losses into `__edge_ledger` while the loop runs: appended like a client's records, answered after the sync.

Gateway and mirror produce to the same topic, so that only the loop may append to it.

Must never come in: which losses there are, who waits and how (network/ledger.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edge_broker.broker.broker import Broker
from edge_broker.broker.outcome import Outcome, Reply
from edge_broker.broker.write import Write, write_all
from edge_broker.errors import Refusal, StorageFault
from edge_broker.storage.direct_ledger import ledger_batches
from edge_broker.storage.ledger import Loss
from edge_broker.storage.log import PartitionLog

WRITE_MS_MAX = 60_000  # cards hang for seconds; a removal is tried again later


def write_losses(
    broker: Broker, log: PartitionLog, losses: Sequence[Loss], done: Callable[[StorageFault | None], None]
) -> Outcome:
    """Append the losses and call `done` once, on the loop: with None after the sync, else with why they are not."""
    batches = list(ledger_batches(losses, broker.now(), str(broker.node_id)))

    def next_batch() -> Outcome:
        if not batches:
            return end(None)
        write = Write(log, batches.pop(0))
        return write_all(
            broker, [write], lambda: next_batch() if write.error is None else end(write.error), WRITE_MS_MAX
        )

    def end(error: Refusal | None) -> Outcome:
        if error is None:
            done(None)
        elif log.fault is not None:
            done(log.fault.kept())
        else:
            done(StorageFault(log.directory, log.log_end_offset, f"the ledger takes nothing: {error}"))
        return Reply(None)

    return next_batch()
