"""Losses into `__edge_ledger` while the loop runs: appended like a client's records, answered after the sync.

Gateway and mirror produce to the same topic, so that only the loop may append to it.

Must never come in: which losses there are, who waits and how (network/ledger.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edge_broker.broker.broker import Broker
from edge_broker.broker.outcome import Outcome, Reply, Wait
from edge_broker.errors import Refusal, StorageFault
from edge_broker.storage.appending import Busy, Writing
from edge_broker.storage.direct_ledger import BATCH_BYTES_MAX, ledger_batches
from edge_broker.storage.ledger import Loss
from edge_broker.storage.log import PartitionLog

WRITE_MS_MAX = 60_000  # cards hang for seconds; a removal is tried again later


def write_losses(
    broker: Broker, log: PartitionLog, losses: Sequence[Loss], done: Callable[[StorageFault | None], None]
) -> Outcome:
    """Append the losses and call `done` once, on the loop: with None after the sync, else with why they are not."""
    batches = list(ledger_batches(losses, broker.now(), str(broker.node_id)))
    end_offset = log.log_end_offset
    writing: Writing | None = None

    def step() -> Outcome | None:
        nonlocal end_offset, writing
        try:
            while batches:
                appended = writing.result() if writing else broker.append(log, batches[0], BATCH_BYTES_MAX, own=True)
                end_offset, writing = appended.end_offset, None
                batches.pop(0)
        except Busy as busy:
            writing = busy.writing
            return None
        except Refusal as refusal:
            return end(StorageFault(log.directory, log.log_end_offset, f"the ledger takes nothing: {refusal}"))
        except StorageFault as fault:
            return end(fault)
        if log.fault is not None:
            return end(log.fault.kept())
        return end(None) if log.synced_offset >= end_offset else None

    def end(fault: StorageFault | None) -> Outcome:
        done(fault)
        return Reply(None)

    def too_late() -> Outcome:
        reason = f"the disk did not confirm the ledger within {WRITE_MS_MAX // 1000} s"
        return end(StorageFault(log.directory, log.log_end_offset, reason))

    return step() or Wait([log], step, WRITE_MS_MAX, too_late)
