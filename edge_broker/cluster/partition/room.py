"""Which replicas have room on their disks, as a leader knows it, and what a full disk changes.

| situation | rule |
|---|---|
| a leader's disk is full, and an in-sync replica has room | it leads; the full one leaves the ISR if it may |
| a leader's disk is low, `min.insync.replicas` others have room | the leader evicts nothing that may still be needed |
| fewer have room | a leader on a low disk evicts, as one board does |
| fewer have room, the leader among them, and full followers would make them enough | the leader evicts in small steps for them |
| a broker requests a leadership transfer to a replica | the leader waits for a new fetch of the replica (lead_transfer.py) |
| the same, and the replica was full within ROOM_KEPT_MS | the leader refuses |
| a replica becomes full, or reports that it was, while the leader transfers to it | the leader leads on, unless it stops |
| the leader is gone | a full replica claims after the others |

A follower reports in each fetch whether its disk is full, and whether it was within ROOM_KEPT_MS (`is_full`,
`was_full`, inter_broker_messages.py). A leader's own memory would not do: it ends with the leader epoch, and a fetch may be lost.
A follower's memory ends with its process: a marker on its disk has the next one count it as full at the start
(storage/maintenance/full_disk_marker.py).
A follower that has not fetched in this leader epoch has room until it counts as slow, as it may be about to fetch. It
removes what its leader removed, whole segments of its own, and so gets room. How much it lacks is not known: a step is
a part of what it holds. Nothing is evicted by one fetch alone: it may be late, or come twice.

Does not contain: free bytes and marks (storage/retention/eviction_plan.py), writes of the state.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edge_broker.cluster.partition.election import Registrations
    from edge_broker.cluster.partition.leader_state import Follower, Leading

ROOM_KEPT_MS = 60_000.0
"""How long a replica must have had room before it leads on request."""
KNOWN_MS = 100.0
"""A replica that keeps out is known to have no room once it has said so for this long: one fetch may be an old one.

A leadership transfer on request goes by a fetch that arrives so long after the request.
"""
STEPS_PER_DISK = 16
"""One step of an eviction for followers is this part of what they hold of the partition."""


def has_room(follower: Follower | None) -> bool:
    """Return whether a follower that has fetched in this epoch takes records."""
    return follower is not None and not follower.keeps_out


def has_kept_room(follower: Follower | None, now_ms: float) -> bool:
    """Return whether a follower was not full within ROOM_KEPT_MS, as far as it or this leader knows."""
    return follower is None or not (follower.was_full or now_ms < follower.kept_out_ms + ROOM_KEPT_MS)


def is_surely_out(follower: Follower) -> bool:
    """Return whether a follower keeps out by more than one fetch in a row, so that evicting may go by it."""
    return follower.keeps_out and follower.fetched_ms >= follower.out_since_ms + KNOWN_MS


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
            count += not is_surely_out(follower) and now_ms <= follower.fetched_ms + lag_ms_max
    return count


def full_followers(
    leading: Leading, replicas: Iterable[int], registrations: Registrations, now_ms: float, lag_ms_max: float
) -> list[Follower]:
    """Return the registered followers that have fetched lately and whose disks are full."""
    found = []
    for broker in replicas:
        registered, follower = registrations.get(broker), leading.followers.get(broker)
        is_known = registered is not None and follower is not None and follower.replica == registered.replica
        if follower is None or not is_known or now_ms > follower.fetched_ms + lag_ms_max:
            continue
        if follower.is_full and is_surely_out(follower):
            found.append(follower)
    return found


def room_offset(full: Sequence[Follower], with_room: int, needed: int, start: int, high_watermark: int) -> int | None:
    """Return the offset below which a leader evicts so that full followers get room; None: it evicts nothing for them.

    `with_room` replicas have room, the leader included; `start` is where the leader's log starts.
    """
    if with_room >= needed or with_room + len(full) < needed:
        return None
    held = min(follower.end for follower in full) - start
    offset = min(start + max(held // STEPS_PER_DISK, 1), high_watermark)
    return offset if held > 0 and offset > start else None
