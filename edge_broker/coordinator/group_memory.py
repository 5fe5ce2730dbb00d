"""Compute the memory of groups: bytes of one group, and the sum over the groups of a coordinator.

Does not contain: how much all groups may hold, and who goes when there is too much (group_memory_limit.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from edge_broker.coordinator.group import Group, Member
from edge_broker.coordinator.group_requests import Protocol

GROUP_BYTES = 1500  # the object, its sets and deadlines
MEMBER_BYTES = 1500  # the object, its deadline, and a request of it that waits
PENDING_BYTES = 500
PROTOCOL_BYTES = 200
RECOUNT_MS = 1000


def protocols_bytes(protocols: Iterable[Protocol]) -> int:
    """Return the bytes of one member's protocols."""
    return sum(len(protocol.name) + len(protocol.metadata) for protocol in protocols)


def said_bytes(group: Group, but: str | None = None) -> int:
    """Return the bytes that clients sent of a group: names, metadata, assignments; without the member `but`."""
    return sum(_sent_bytes(member) for member in group.members.values() if member.member_id != but)


def _sent_bytes(member: Member) -> int:
    names = len(member.member_id) + len(member.client_id) + len(member.client_host) + len(member.instance_id or "")
    return names + protocols_bytes(member.protocols) + len(member.assignment or b"")


def held_bytes(group: Group) -> int:
    """Return the memory of a group."""
    size = GROUP_BYTES + 2 * len(group.group_id)
    size += sum(PENDING_BYTES + 2 * len(member_id) for member_id in group.pending_ids)
    for member in group.members.values():
        size += MEMBER_BYTES + PROTOCOL_BYTES * len(member.protocols) + _sent_bytes(member)
    return size


class Memory:
    """The sum over all groups: exact for a group that is counted, for the others as they were counted last."""

    def __init__(self, groups: Mapping[str, Group]) -> None:
        self._groups = groups
        self._held: dict[str, int] = {}
        self._counted_ms: int | None = None
        self.held = 0

    def count(self, group_id: str) -> None:
        """Count one group again; it may be gone."""
        group = self._groups.get(group_id)
        before, after = self._held.pop(group_id, 0), 0 if group is None else held_bytes(group)
        if group is not None:
            self._held[group_id] = after
        self.held += after - before

    def count_all(self, now_ms: int) -> None:
        """Count all groups again, at most once in RECOUNT_MS."""
        if self._counted_ms is not None and now_ms - self._counted_ms < RECOUNT_MS:
            return
        self._counted_ms = now_ms
        self._held = {group_id: held_bytes(group) for group_id, group in self._groups.items()}
        self.held = sum(self._held.values())
