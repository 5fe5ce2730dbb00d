"""What becomes of a replica whose log is damaged: others have what it lacks, if there are others.

| its log is damaged, and the state | what it does |
|---|---|
| names others beside it | it leaves the in-sync set; if it leads, nobody does, and one of the others is elected |
| names it alone | nobody else has what it lacks: that is written down as lost, as on a board that stands alone; then it goes on |
| names it not, and it may have been counted in this epoch | the next epoch begins |
| names it not, in an epoch in which it was never counted | it follows, keeping out; once the leader is known to have all of its log, that is cut where the damage begins |

Each step out of the set begins another leader epoch, though the same leader may lead: what was acknowledged by the log
as it was, and may still be on its way, counts for nothing there. So whoever is named again has all of it anew.

While it keeps out, each fetch says so (inter_broker_messages.py); it is no candidate. A leader that is gone is waited for: nothing
is cut before somebody leads who has it.

Lives here: what the state should say. Must never come in: how damage is found (storage/loss/quarantine.py, storage/replica/missing_ranges.py).
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
    left = election.without(state, broker)
    return left._replace(leader_epoch=next_epoch(left.leader))
