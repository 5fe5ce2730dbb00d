"""Rules about full cards and a change of leader, each broken on purpose; SEEDS_OF_CARDS has a seed that finds each.

Does not contain: rules under one leader (cluster_broken.py).
"""

from __future__ import annotations

from typing import Any

from edge_broker.cluster import partition
from edge_broker.cluster.leading import Follower, Leading
from edge_broker.cluster.partition import Partition
from edge_broker.cluster.room import ROOM_KEPT_MS
from edge_broker.cluster.state import InSyncReplica


def believe_this_leader_alone(follower: Follower | None, now_ms: float) -> bool:
    """Ignore what a follower reports of its past."""
    return follower is None or now_ms >= follower.kept_out_ms + ROOM_KEPT_MS


def begin_anew_with_each_registration(self: Leading, replica: InSyncReplica, now_ms: float) -> Follower | None:
    """Forget with a restart what the board's disk was like."""
    before = self.followers.get(replica.broker)
    found = _follower(self, replica, now_ms)
    if found is not None and found is not before:
        found.kept_out_ms = float("-inf")
    return found


_follower = Leading._follower
BROKEN_CARDS: dict[str, tuple[Any, str, Any]] = {
    "a leader knows of full disks what it saw itself": (partition, "has_kept_room", believe_this_leader_alone),
    "a request is checked as it comes alone": (Partition, "_heir_is_full", lambda self: False),
    "a restart hides that a disk was full": (Leading, "_follower", begin_anew_with_each_registration),
}
SEEDS_OF_CARDS = {
    "a leader knows of full disks what it saw itself": 0,
    "a request is checked as it comes alone": 32,
    "a restart hides that a disk was full": 3,
}
