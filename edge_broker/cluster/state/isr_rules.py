"""The in-sync set's rules: who may join, who leaves, and how far the high watermark may go.

| rule | why |
|---|---|
| the high watermark is the least synced end of the maximal set | a follower that may be in it, may be elected |
| the maximal set is what the state znode says, and what a change in progress, or of unknown outcome, may make of it | |
| it stands still while fewer than `needed` are certainly in the set | what is shown lies on so many disks |
| who joins has all before the high watermark and before the start of the leader's epoch, synced | a new leader's mark begins low |
| the set never becomes smaller than `needed` for slowness or absence | those named have all that counts: they may be elected, and the mark could not move without them anyway (KIP-966 keeps them in a list of their own) |
| what a topic without syncs has acknowledged counts when written; after a power loss its entry does not | it may lack that: only the last one that is named may go on |
| an entry is one disk under one registration | a restarted broker's acknowledgements count once its entry names its new epoch |

Does not contain: messages, writes. Source: KIP-497, KIP-966 (strict min ISR), KIP-903.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Iterable, Mapping

from edge_broker.cluster.state.cluster_state import InSyncReplica

InSync = tuple[InSyncReplica, ...]


def maximal(certain: InSync, pending: InSync | None) -> frozenset[InSyncReplica]:
    """All that may be in the set."""
    return frozenset(certain).union(pending or ())


def surely(certain: InSync, pending: InSync | None) -> frozenset[InSyncReplica]:
    """All that are in it whatever became of a change."""
    return frozenset(certain) if pending is None else frozenset(certain).intersection(pending)


def high_watermark(ends: Mapping[InSyncReplica, int], certain: InSync, pending: InSync | None, needed: int) -> int:
    """How far the mark may go, 0: it may not move.

    `ends` has the synced end that each replica, the leader too, has acknowledged in the leader's epoch.
    """
    if len(surely(certain, pending)) < needed:
        return 0
    return min((ends.get(replica, 0) for replica in maximal(certain, pending)), default=0)


def may_join(synced_end: int, mark: int, epoch_start: int) -> bool:
    """Whether a follower that has matched its log to the leader's epoch may be named."""
    return synced_end >= max(mark, epoch_start)


def changed_isr(certain: InSync, joining: Iterable[InSyncReplica], gone: InSync, slow: InSync, needed: int) -> InSync:
    """The set that a leader wishes: who joins replaces its own older entry; of the others those that are gone go first.

    Entries keep their order, so that a set that does not change is equal to itself.
    """
    fresh = {each.broker: each for each in joining}
    wished = [fresh.pop(each.broker, each) for each in certain]
    wished += fresh.values()
    for leaving in (*gone, *slow):
        if leaving in wished and len(wished) > needed:
            wished.remove(leaving)
    return tuple(wished)
