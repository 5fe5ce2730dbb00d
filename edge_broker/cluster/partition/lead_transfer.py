"""Transfer of the lead of one partition to another in-sync replica, on request or as this broker cannot lead on.

| event | the leader |
|---|---|
| a request for a replica that was full within ROOM_KEPT_MS, as far as its last fetch reports | refuses it |
| another request | keeps it, and leads on |
| a new fetch of that replica reports that it has no room, or was full | drops the request |
| else: a new fetch arrives less than KNOWN_MS after the request | leads on: the fetch may be older than a full disk |
| else: a new fetch arrives later | grants the request: the transfer begins |
| the new leader has no room, is gone or too slow | ends the transfer, and leads on |

A waiting fetch that the leader evaluates again is no new fetch. A request ends with the leader epoch.

Does not contain: which replica has room (room.py), the write of the state (partition.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from edge_broker.cluster.partition.election import LivenessView, may_take_over
from edge_broker.cluster.partition.leader_state import Follower
from edge_broker.cluster.partition.room import KNOWN_MS, has_kept_room, has_room
from edge_broker.cluster.state.cluster_state import NO_LEADER, PartitionState


class LeadRequests:
    """The requests of one leader epoch that are not decided yet, by the replica that is to lead."""

    def __init__(self) -> None:
        self._since_ms: dict[int, float] = {}

    def add(self, replica: int, now_ms: float) -> None:
        """Keep a request; one that is repeated counts from its first time."""
        self._since_ms.setdefault(replica, now_ms)

    def decide(self, replica: int, now_ms: float, *, kept_room: bool) -> bool:
        """Return whether a new fetch of a replica grants its request; `kept_room` as the fetch reports."""
        since_ms = self._since_ms.get(replica)
        is_late = since_ms is not None and now_ms >= since_ms + KNOWN_MS
        if is_late or not kept_room:
            self._since_ms.pop(replica, None)
        return is_late and kept_room

    def clear(self) -> None:
        """Drop all requests, as another leader epoch begins."""
        self._since_ms.clear()


class Member(LivenessView, Protocol):
    """The member that the partition belongs to."""

    now_ms: float
    leaving: bool


class LeadTransfer:
    """The part of a partition that transfers the lead, to one replica at a time."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._requests = LeadRequests()
        self.to = NO_LEADER
        self._until_ms = 0.0
        self._on_request = False  # then only to a replica that has kept room

    def begin_epoch(self) -> None:
        """Forget the requests of an earlier leader epoch."""
        self._requests.clear()

    def request(self, to: int, followers: Mapping[int, Follower]) -> bool:
        """Keep a request until a new fetch decides it; False: the replica is known to have been full."""
        may = has_kept_room(followers.get(to), self._member.now_ms)
        if may:
            self._requests.add(to, self._member.now_ms)
        return may

    def decide(self, replica: int, followers: Mapping[int, Follower]) -> bool:
        """Return whether a new fetch, which `followers` has already, grants a request for its replica, or drop that."""
        now_ms = self._member.now_ms
        return self._requests.decide(replica, now_ms, kept_room=has_kept_room(followers.get(replica), now_ms))

    def begin(self, to: int, within_ms: float, *, on_request: bool) -> None:
        """Begin a transfer, which has so much time."""
        self.to, self._until_ms, self._on_request = to, self._member.now_ms + within_ms, on_request

    def may_go_on(self, state: PartitionState, followers: Mapping[int, Follower]) -> bool:
        """Return whether the new leader can still lead, and there is time left."""
        is_late = self._member.now_ms > self._until_ms
        return may_take_over(state, self.to, self._member) and not is_late and not self._is_full(followers)

    def _is_full(self, followers: Mapping[int, Follower]) -> bool:
        """Return whether the new leader has no room after all, which counts unless this broker stops."""
        follower = followers.get(self.to)
        if follower is None or self._member.leaving:
            return False
        kept = has_kept_room(follower, self._member.now_ms)
        return not (has_room(follower) and (kept or not self._on_request))
