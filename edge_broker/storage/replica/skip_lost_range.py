"""A follower passes over what its leader has recorded as lost: no replica that counts has it.

| step of `pass_over` | a crash after it leaves |
|---|---|
| what is before it is synced | the log as it was |
| `<base>.holes` has the range, without bytes, synced | a log that ends after the range |
| the checkpoint says of which epoch it is, synced | the same |

A crash before the last step, and a start that reads all of the log, forget that epoch. It shows as logs that diverge
within the range: the follower is cut there, and passes over the rest again.

The ledger has it from the leader, once; so nothing is entered here. Readers skip it as over any corrupt range.

Does not contain: what is lost (missing_ranges.py), which replicas skip it (cluster/partition/partition.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_broker.storage.log.log_state import LogEnd
from edge_broker.storage.loss.quarantine import add_corrupt_range
from edge_broker.storage.replica.replica_truncation import remake, showing
from edge_broker.storage.segment.batch_scan import CorruptRange
from edge_broker.storage.segment.segment import Segment
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.storage.files.data_age import Now
    from edge_broker.storage.log.partition_log import PartitionLog
    from edge_broker.storage.log_store import LogStore


@runs_in("files")
def pass_over(store: LogStore, log: PartitionLog, end_offset: int, epoch: int, now: Now) -> PartitionLog:
    """Have a paused log continue at an offset after its end, durably; return what it is to `resume_as`.

    `epoch` is that of the leader's log before that offset. StorageFault takes it offline; a start finds it as it was,
    or after the range.
    """
    first_offset, show = log.log_end_offset, showing(log)

    def decide() -> None:
        assert first_offset < end_offset, f"{log!r} has nothing to pass over before {end_offset}"
        state, active = log.state, log.state.active
        if state.synced.offset < first_offset:
            active.datasync()
            state.synced = state.end()
        add_corrupt_range(active, CorruptRange(first_offset, end_offset, active.size, active.size))
        segment = Segment(log.files, log.directory, active.base_offset, active.size, log.settings.index_interval_bytes)
        segment.corrupt_ranges = active.corrupt_ranges
        state.cut(LogEnd(segment, active.size, end_offset, (-1, -1)))

    def finish(fresh: PartitionLog) -> None:
        if epoch > fresh.state.epochs.latest:
            fresh.state.epochs.note(epoch, first_offset)
            fresh.roller.keep_epochs()
        show(fresh)

    return remake(store, log, now, decide, finish)
