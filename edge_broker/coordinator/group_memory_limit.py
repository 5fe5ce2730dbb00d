"""Bounds the memory of all groups and committed offsets, and removes members when there is too much of it.

| bound | default | at it |
|---|---|---|
| what one group says (names, metadata, assignments) | message.max.bytes | refused |
| all groups and committed offsets | 16 MiB | unused ids go, then members without a connection; then refused |

Refused is a JoinGroup with GROUP_MAX_SIZE_REACHED, a SyncGroup with COORDINATOR_NOT_AVAILABLE, and an offset for a
partition that the group has none for with INVALID_COMMIT_OFFSET_SIZE. Data of older versions is loaded, whatever
its size. Does not contain: sums (group_memory.py), rebalances, answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Protocol

from edge_broker.coordinator.group import Group
from edge_broker.coordinator.group_memory import Memory
from edge_broker.coordinator.group_requests import NOBODY, GroupEffects
from edge_broker.coordinator.offsets import CommittedOffsets

LET_GO_AT_ONCE = 64


class Coordinator(Protocol):
    """A coordinator as its bound sees it: what it holds, and how a member leaves it."""

    groups: dict[str, Group]
    memory: Memory
    offsets: CommittedOffsets

    def effects(self, now_ms: int) -> GroupEffects:
        """Return the effects of a call at `now_ms`, none yet."""

    def release_member(self, group: Group, member_id: str, effects: GroupEffects) -> None:
        """Remove a member, or a member id that was given out."""


class Room:
    """The bound of the groups of all coordinators together; a coordinator that is loaded or dropped moves."""

    def __init__(self, bytes_max: int, is_connected: Callable[[str], bool] = lambda peer: True) -> None:
        self.bytes_max = bytes_max
        self.coordinators: list[Coordinator] = []
        self.is_connected = is_connected
        """Whether a connection is still there; asked when memory is short."""

    def is_full(self, size: int = 0) -> bool:
        """Whether so many bytes more are too many."""
        return sum(one.memory.held + one.offsets.held for one in self.coordinators) + size > self.bytes_max

    def recount(self, now_ms: int) -> None:
        """Count what changed unseen."""
        for coordinator in self.coordinators:
            coordinator.memory.count_all(now_ms)

    def make(self, size: int, asking_id: str, asking: Coordinator, effects: GroupEffects) -> bool:
        """Let go of ids that were given out and not used, then of members without a connection, a few at a time.

        Whether there is room then. Effects on other coordinators' groups are in `effects.elsewhere`.
        """
        if not self.is_full(size):
            return True
        self.recount(effects.now_ms)
        going = [
            who
            for who in islice(chain(self._pending_members(), self._disconnected_members()), LET_GO_AT_ONCE)
            if who[2] != asking_id
        ]
        for coordinator, group, member_id in going:
            if not self.is_full(size):
                break
            if coordinator is asking:
                coordinator.release_member(group, member_id, effects)
            else:
                effects.elsewhere.append(coordinator.effects(effects.now_ms))
                coordinator.release_member(group, member_id, effects.elsewhere[-1])
        return not self.is_full(size)

    def _pending_members(self) -> Iterator[tuple[Coordinator, Group, str]]:
        for coordinator in self.coordinators:
            for group in coordinator.groups.values():
                yield from ((coordinator, group, member_id) for member_id in group.pending_ids)

    def _disconnected_members(self) -> Iterator[tuple[Coordinator, Group, str]]:
        for coordinator in self.coordinators:
            for group in coordinator.groups.values():
                for member in group.members.values():
                    waits_in_vain = NOBODY in (member.join_token, member.sync_token)
                    if waits_in_vain or not self.is_connected(member.peer):
                        yield coordinator, group, member.member_id
