"""Decide the state to write while a replica's log is damaged: others have its missing records, if there are others.

| its log is damaged, and the state | the replica |
|---|---|
| also names others | leaves the in-sync set; if it leads, it gives up the lead, and one of the others is elected |
| names it alone | records its missing ranges as lost, as a single node does, since no other replica has them; then it goes on |
| does not name it, and it may have counted in this epoch | begins the next epoch |
| does not name it, in an epoch in which it never counted | follows, keeping out; once the leader is known to have all of its log, the log is truncated where the damage begins |

Each step out of the set begins another leader epoch, even under the same leader. Acknowledgements of the log as it was,
which may still be in flight, count for nothing there. So a replica that is named again has fetched all of it again.

While it keeps out, each fetch says so (inter_broker_messages.py); it is no candidate. Without a leader it waits: nothing
is truncated before a broker leads that has the records.

Contains: the state to write. Does not contain: how damage is found (storage/loss/quarantine.py,
storage/replica/missing_ranges.py).
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from edge_broker.cluster.partition import election

if TYPE_CHECKING:
    from edge_broker.cluster.state.cluster_state import PartitionState


def steps_back(state: PartitionState, *, damaged: bool) -> bool:
    """Whether a replica leaves it to others."""
    return damaged and len(state.in_sync) > 1


def without_damaged(
    state: PartitionState, broker: int, *, counted: bool, next_epoch: Callable[[int], int]
) -> PartitionState:
    """The state as it should be where this broker's log is damaged.

    `counted`: a fetch of it that did not keep out was sent in this epoch, or in a later one. `next_epoch` returns the
    epoch that a broker would lead in next.
    """
    if state.entry(broker) is None:
        return state._replace(leader_epoch=next_epoch(state.leader)) if counted else state
    if not steps_back(state, damaged=True):
        return state
    left = election.without_broker(state, broker)
    return left._replace(leader_epoch=next_epoch(left.leader))
