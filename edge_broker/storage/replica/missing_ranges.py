"""Missing ranges: records that this replica lost and another may still have. They are a loss only if no replica has them.

| step | on the disk | a crash after it leaves |
|---|---|---|
| `quarantine.mark_missing`: damage was found | `<base>.holes` has the range, owed, synced | a replica that knows at its start what it lacks |
| then `record_missing`, if no other replica has it | the ledger has it (`damaged`), synced | a record that is made again, with the same id |
| | `<base>.holes` has it, no longer missing, synced: readers skip it | a corrupt range, as on a single-node broker |
| or `truncating.cut_damage`, once it is in no in-sync set | the log ends where the first such range begins | the records after it come from the leader |

No read crosses a missing range: it is rejected. A start finds the range in its own walk, and opens the log around it.
A replica with such a log neither leads nor serves before it is resolved (cluster/partition/damaged_replica_rules.py).

Does not contain: who else has what.
"""  # noqa: E501

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_broker.storage.loss.quarantine import damage_in, in_order, ledgered_ranges, write_corrupt_ranges
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.storage.log.partition_log import PartitionLog


@runs_in("files")
def record_missing(log: PartitionLog) -> None:
    """Record missing ranges as lost that no other replica has, synced; then readers skip them.

    StorageFault, Refusal: the ledger or the disk takes nothing now, and all stays owed.
    """
    if log.fault is not None:
        raise log.fault.without_frames()
    owed = log.missing_ranges
    there = {segment.base_offset: segment for segment in log.segments}
    lost = [(there[base], one._replace(owed=0)) for base, one in owed if base in there]
    losses = [damage_in(segment, one).loss(log.topic, log.topic_id, log.partition) for segment, one in lost]
    if losses:
        log.ledger.write(losses)
    for segment in {segment.base_offset: segment for segment, _ in lost}.values():
        mine = [one for where, one in lost if where is segment]
        write_corrupt_ranges(segment, in_order([*ledgered_ranges(segment.corrupt_ranges), *mine]))
    log.missing_ranges = tuple(place for place in log.missing_ranges if place not in owed)
