"""Which replicas have room on their disks, as a leader knows it, and what a full disk changes.

| situation | rule |
|---|---|
| a leader's disk is full, and an in-sync replica has room | it leads; the full one leaves the ISR if it may |
| a leader's disk is low, `min.insync.replicas` others have room | the leader evicts nothing that may still be needed |
| fewer have room | the leader evicts, as one board does |
| a broker asks for a leadership transfer to a replica that was full within ROOM_KEPT_MS | the leader refuses |
| the leader is gone | a full replica claims after the others |

A follower says in each fetch whether its disk is full (`keeps_out`, messages.py). One that has not fetched in this
leader epoch has room until it counts as slow, as it may be about to fetch.

Does not contain: free bytes and marks (storage/eviction.py), writes of the state.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edge_broker.cluster.election import Registrations
    from edge_broker.cluster.leading import Follower, Leading

ROOM_KEPT_MS = 60_000.0
"""How long a replica must have had room before it leads on request."""


def has_room(follower: Follower | None) -> bool:
    """Return whether a follower that has fetched in this epoch takes records."""
    return follower is not None and not follower.keeps_out


def has_kept_room(follower: Follower | None, now_ms: float) -> bool:
    """Return whether a follower was not full within ROOM_KEPT_MS, as far as this leader knows."""
    return follower is None or now_ms >= follower.kept_out_ms + ROOM_KEPT_MS


def others_with_room(
    leading: Leading, replicas: Iterable[int], registrations: Registrations, now_ms: float, lag_ms_max: float
) -> int:
    """Return how many other replicas are registered and have room, caught up or not."""
    count = 0
    for broker in replicas:
        registered = registrations.get(broker)
        if registered is None or broker == leading.me.broker:
            continue
        follower = leading.followers.get(broker)
        if follower is None or follower.replica != registered.replica:
            count += now_ms <= leading.began_ms + lag_ms_max
        else:
            count += not follower.keeps_out and now_ms <= follower.fetched_ms + lag_ms_max
    return count
