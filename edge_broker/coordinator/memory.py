"""What groups and committed offsets take of memory, and what is let go of when there is too much of it.

| bound | default | at it |
|---|---|---|
| what one group says (names, metadata, assignments) | message.max.bytes | refused |
| all groups and committed offsets | 16 MiB | unused ids go, then members without a connection; then refused |

Refused is a JoinGroup with GROUP_MAX_SIZE_REACHED, a SyncGroup with COORDINATOR_NOT_AVAILABLE, and an offset for a
partition that the group has none for with INVALID_COMMIT_OFFSET_SIZE. What older versions stored is loaded whatever
its size. Lives here: sums, and who goes. Must never come in: rebalances, answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import TYPE_CHECKING

from edge_broker.coordinator.calls import NOBODY, GroupEffects, Protocol
from edge_broker.coordinator.group import Group, Member

if TYPE_CHECKING:
    from edge_broker.coordinator.groups import GroupCoordinator

GROUP_BYTES = 1500  # the object, its sets and deadlines
MEMBER_BYTES = 1500  # the object, its deadline, and a request of it that waits
PENDING_BYTES = 500
PROTOCOL_BYTES = 200
RECOUNT_MS = 1000
LET_GO_AT_ONCE = 64


def protocols_bytes(protocols: Iterable[Protocol]) -> int:
    """What the protocols of one member say."""
    return sum(len(protocol.name) + len(protocol.metadata) for protocol in protocols)


def said_bytes(group: Group, but: str | None = None) -> int:
    """What clients said of a group: names, metadata, assignments; without the member `but`."""
    return sum(_said(member) for member in group.members.values() if member.member_id != but)


def _said(member: Member) -> int:
    names = len(member.member_id) + len(member.client_id) + len(member.client_host) + len(member.instance_id or "")
    return names + protocols_bytes(member.protocols) + len(member.assignment or b"")


def held_bytes(group: Group) -> int:
    """What a group takes of memory."""
    size = GROUP_BYTES + 2 * len(group.group_id)
    size += sum(PENDING_BYTES + 2 * len(member_id) for member_id in group.pending_ids)
    for member in group.members.values():
        size += MEMBER_BYTES + PROTOCOL_BYTES * len(member.protocols) + _said(member)
    return size


class Memory:
    """The sum over all groups: exact for a group that is counted, for the others as they were counted last."""

    def __init__(self, groups: Mapping[str, Group]) -> None:
        self._groups = groups
        self._held: dict[str, int] = {}
        self._counted_ms: int | None = None
        self.held = 0

    def count(self, group_id: str) -> None:
        """Count one group anew; it may be gone."""
        group = self._groups.get(group_id)
        before, after = self._held.pop(group_id, 0), 0 if group is None else held_bytes(group)
        if group is not None:
            self._held[group_id] = after
        self.held += after - before

    def count_all(self, now_ms: int) -> None:
        """Count all groups anew, at most once in RECOUNT_MS."""
        if self._counted_ms is not None and now_ms - self._counted_ms < RECOUNT_MS:
            return
        self._counted_ms = now_ms
        self._held = {group_id: held_bytes(group) for group_id, group in self._groups.items()}
        self.held = sum(self._held.values())


class Room:
    """What the groups of all coordinators may hold together; a coordinator that is loaded or dropped moves."""

    def __init__(self, bytes_max: int, is_connected: Callable[[str], bool] = lambda peer: True) -> None:
        self.bytes_max = bytes_max
        self.coordinators: list[GroupCoordinator] = []
        self.is_connected = is_connected
        """Whether a connection is still there; asked when memory is short."""

    def is_full(self, size: int = 0) -> bool:
        """Whether so many bytes more are too many."""
        return sum(one.memory.held + one.offsets.held for one in self.coordinators) + size > self.bytes_max

    def recount(self, now_ms: int) -> None:
        """Count what changed unseen."""
        for coordinator in self.coordinators:
            coordinator.memory.count_all(now_ms)

    def make(self, size: int, asking_id: str, asking: GroupCoordinator, effects: GroupEffects) -> bool:
        """Let go of ids that were given out and not used, then of members without a connection, a few at a time.

        Whether there is room then. What that brings about in other coordinators' groups is `effects.elsewhere`.
        """
        if not self.is_full(size):
            return True
        self.recount(effects.now_ms)
        going = [who for who in islice(chain(self._unused(), self._gone()), LET_GO_AT_ONCE) if who[2] != asking_id]
        for coordinator, group, member_id in going:
            if not self.is_full(size):
                break
            if coordinator is asking:
                coordinator.let_go(group, member_id, effects)
            else:
                effects.elsewhere.append(coordinator.effects(effects.now_ms))
                coordinator.let_go(group, member_id, effects.elsewhere[-1])
        return not self.is_full(size)

    def _unused(self) -> Iterator[tuple[GroupCoordinator, Group, str]]:
        for coordinator in self.coordinators:
            for group in coordinator.groups.values():
                yield from ((coordinator, group, member_id) for member_id in group.pending_ids)

    def _gone(self) -> Iterator[tuple[GroupCoordinator, Group, str]]:
        for coordinator in self.coordinators:
            for group in coordinator.groups.values():
                for member in group.members.values():
                    waits_in_vain = NOBODY in (member.join_token, member.sync_token)
                    if waits_in_vain or not self.is_connected(member.peer):
                        yield coordinator, group, member.member_id
