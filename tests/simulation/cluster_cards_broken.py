"""Rules about full cards with changes of leader, and with internal topics, each broken on purpose.

SEEDS_OF_CARDS has a seed that finds each. `grant_at_once` and `begin_anew_with_each_registration` have their own, in
test_cluster_cards.py.

Does not contain: rules under one leader (cluster_broken.py).
"""

from __future__ import annotations

from typing import Any

from edge_broker.broker.cluster import replication
from edge_broker.broker.state.disk_space import ALWAYS_WRITTEN
from edge_broker.cluster.partition import lead_transfer
from edge_broker.cluster.partition.leader_state import Follower, Leading
from edge_broker.cluster.partition.partition import Partition
from edge_broker.cluster.partition.room import ROOM_KEPT_MS, has_kept_room
from edge_broker.cluster.state.cluster_state import InSyncReplica
from edge_broker.network.cluster.jobs import replica_space
from edge_broker.network.cluster.jobs.replica_space import ReplicaSpace
from edge_broker.storage.files.data_age import Now
from edge_broker.storage.maintenance.full_disk_marker import FullDiskMarker


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


def lead_on_with_internal_topics(self: Partition) -> None:
    """Hand over the ordinary topic alone."""
    if self.partition.topic not in ALWAYS_WRITTEN:
        _make_way(self)


def take_records_on_every_disk(self: ReplicaSpace, *, full: bool) -> None:
    """Never report that an internal topic found no space."""


def remember_nothing(self: FullDiskMarker, now: Now, *, is_full: bool) -> None:
    """Make no marker of a full disk."""


def decide_as_it_comes(self: Partition, to: int) -> bool:
    """Go by the replica's last fetch, which may be older than its full disk, and never look again."""
    return knows_no_full_disk(self, to) and self.hand_over(to)


def grant_at_once(self: Partition, to: int) -> bool:
    """Go by the last fetch; look again only at fetches that arrive before the transfer is written."""
    return knows_no_full_disk(self, to) and self.hand_over(to, on_request=True)


def knows_no_full_disk(partition: Partition, replica: int) -> bool:
    """Return whether a replica has kept room by its last fetch, or has not fetched in this leader epoch."""
    follower = partition.leading.followers.get(replica) if partition.leading is not None else None
    return has_kept_room(follower, partition._member.now_ms)


_follower, _make_way = Leading._follower, Partition._make_way
BROKEN_CARDS: dict[str, tuple[Any, str, Any]] = {
    "a leader knows of full disks what it saw itself": (lead_transfer, "has_kept_room", believe_this_leader_alone),
    "a request is checked as it comes alone": (Partition, "hand_over_on_request", decide_as_it_comes),
    "a restarted board forgets that its disk was full": (FullDiskMarker, "update", remember_nothing),
    "a board without a byte left leads on with an internal topic": (
        Partition,
        "_make_way",
        lead_on_with_internal_topics,
    ),
    "an internal topic takes records on every disk": (ReplicaSpace, "_look_at_internal", take_records_on_every_disk),
    "an internal topic keeps out for good": (replica_space, "INTERNAL_ROOM_BYTES", 1 << 40),
    "an internal topic is evicted for full followers": (replication, "ALWAYS_WRITTEN", frozenset()),
}
SEEDS_OF_CARDS = {
    "a leader knows of full disks what it saw itself": 0,
    "a request is checked as it comes alone": 32,
    "a restarted board forgets that its disk was full": 60000049,
    "a board without a byte left leads on with an internal topic": 1,
    "an internal topic takes records on every disk": 1,
    "an internal topic keeps out for good": 1,
    "an internal topic is evicted for full followers": 77,
}
