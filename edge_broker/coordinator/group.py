"""One consumer group: its members, their votes, its state.

Contains: what is true of a group at one moment, and which states may follow which. Does not contain: deadlines,
answers, records; those are group_coordinator.py's. Source: Apache Kafka's classic groups, KIP-345 (static members).

| from | to | when |
|---|---|---|
| Empty | PreparingRebalance | a member joins |
| Empty | Dead | nothing tells of the group any more |
| PreparingRebalance | CompletingRebalance | all joined, or the time is up and some did |
| PreparingRebalance | Empty | no member is left |
| CompletingRebalance | Stable | the leader's assignment is on disk |
| CompletingRebalance | PreparingRebalance | a member joins, leaves or fails; no SyncGroup in time; the disk fails |
| Stable | PreparingRebalance | a member joins, leaves or fails; the leader joins again |
| any | Dead | the broker stops, or does not lead the partition any more |
"""

from enum import StrEnum
from typing import ClassVar

from edge_broker.coordinator.group_requests import JoinedMember, Protocol
from edge_broker.coordinator.offset_records import GroupMetadata, MemberMetadata
from edge_broker.errors import ErrorCode

AGE_LONG_AGO = -1 << 62


class GroupState(StrEnum):
    """States by the names that clients see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_EMPTY, _PREPARING, _COMPLETING = GroupState.EMPTY, GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE
_STABLE, _DEAD = GroupState.STABLE, GroupState.DEAD

TRANSITIONS: dict[GroupState, frozenset[GroupState]] = {
    _EMPTY: frozenset({_PREPARING, _DEAD}),
    _PREPARING: frozenset({_EMPTY, _COMPLETING, _DEAD}),
    _COMPLETING: frozenset({_PREPARING, _STABLE, _DEAD}),
    _STABLE: frozenset({_PREPARING, _DEAD}),
    _DEAD: frozenset(),
}


class Member:
    """A member; a token stands for a request of its that waits, `calls.NOBODY` for one whose connection is gone.

    `peer` is the connection that it was last heard of over, "" before it is. `is_new`: it has not had its first
    JoinGroup answered, and cannot send heartbeats yet.
    """

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join_token",
        "member_id",
        "peer",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_token",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocols: tuple[Protocol, ...],
        assignment: bytes | None = None,
        *,
        peer: str = "",
        join_token: int | None = None,
        is_new: bool = False,
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.peer = peer
        self.join_token = join_token
        self.sync_token: int | None = None
        self.is_new = is_new

    @property
    def waits(self) -> bool:
        """Whether a request of this member waits for its answer."""
        return self.join_token is not None or self.sync_token is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """The member's metadata for a protocol; empty for one that it does not follow."""
        return next((protocol.metadata for protocol in self.protocols if protocol.name == protocol_name), b"")


class Group:
    """A group and its members; `members` keeps the order of joining."""

    __slots__ = (
        "emptied_age_ms",
        "generation_id",
        "group_id",
        "initial_delay_left_ms",
        "initial_delay_ms",
        "is_stored",
        "leader_id",
        "member_came",
        "members",
        "pending_ids",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "state",
        "state_since_ms",
        "static_ids",
        "storing_generation_id",
        "unsynced_ids",
    )
    group_type: ClassVar[str] = "classic"
    """By the names that clients see; KIP-848's would be another class."""

    def __init__(self, group_id: str, state_since_ms: int, state: GroupState = GroupState.EMPTY) -> None:
        self.group_id = group_id
        self.state_since_ms = state_since_ms
        self.state = state
        self.previous_state = GroupState.DEAD
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation_id = 0
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_ids: dict[str, str] = {}
        """Member id by group.instance.id."""
        self.pending_ids: set[str] = set()
        """Ids given out with MEMBER_ID_REQUIRED that have not come back yet."""
        self.unsynced_ids: set[str] = set()
        """Members of this generation that have not sent SyncGroup yet."""
        self.storing_generation_id = -1
        """The generation whose assignment is on its way to disk."""
        self.initial_delay_ms = 0
        self.initial_delay_left_ms = 0
        self.member_came = False
        """A member joined during the initial delay, which is then extended."""
        self.emptied_age_ms = AGE_LONG_AGO
        """The age of the data directory when the last member went; one without members from the beginning has none."""
        self.is_stored = False
        """Whether the log holds, or is about to hold, a record of this group."""

    def enter(self, state: GroupState, wall_ms: int) -> None:
        """Go to another state of the table."""
        assert state in TRANSITIONS[self.state], f"{self.group_id}: {self.state} to {state}"
        self.previous_state, self.state, self.state_since_ms = self.state, state, wall_ms

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode | None:
        """Why this member may not speak for itself; None when it may."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if instance_id is not None:
            known_id = self.static_ids.get(instance_id)
            if known_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return None if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def add(self, member: Member) -> None:
        """Take a member in; the first becomes leader and names the protocol type elsewhere."""
        self.members[member.member_id] = member
        self.pending_ids.discard(member.member_id)
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member_id: str) -> None:
        """Drop a member or a pending id; leadership goes to the member that has been here longest."""
        member = self.members.pop(member_id, None)
        if member is not None and member.instance_id is not None:
            del self.static_ids[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_ids.discard(member_id)
        self.unsynced_ids.discard(member_id)

    def replace(self, member: Member, member_id: str) -> None:
        """Give a static member its new id; its place in the order, its assignment and its leadership stay."""
        old_id, instance_id = member.member_id, member.instance_id
        assert instance_id is not None, "only static members are replaced"
        member.member_id = member_id
        self.members = {known.member_id: known for known in self.members.values()}
        self.static_ids[instance_id] = member_id
        if self.leader_id == old_id:
            self.leader_id = member_id
        if old_id in self.unsynced_ids:
            self.unsynced_ids.remove(old_id)
            self.unsynced_ids.add(member_id)

    def follows(self, protocol_type: str, protocols: tuple[Protocol, ...]) -> bool:
        """Whether a client with these protocols can be a member: all must share one at least."""
        if not self.members:
            return bool(protocol_type) and bool(protocols)
        common = self._common_protocols()
        return protocol_type == self.protocol_type and any(protocol.name in common for protocol in protocols)

    def vote(self) -> str:
        """The protocol with most votes: each member votes for its first among those that all follow."""
        common = self._common_protocols()
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = next(protocol.name for protocol in member.protocols if protocol.name in common)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)

    def all_joined(self) -> bool:
        """Whether no member is left to wait for in PreparingRebalance."""
        return not self.pending_ids and all(member.join_token is not None for member in self.members.values())

    def elect_leader(self) -> bool:
        """Keep the leader if it joined, else make the first who did leader; False if no member joined."""
        joined = [member.member_id for member in self.members.values() if member.join_token is not None]
        if joined and self.leader_id not in joined:
            self.leader_id = joined[0]
        return bool(joined)

    def next_generation(self, wall_ms: int) -> None:
        """Begin a generation with the present members: CompletingRebalance, or Empty without members."""
        self.generation_id += 1
        self.unsynced_ids = set(self.members)
        self.protocol_name = self.vote() if self.members else None
        self.enter(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY, wall_ms)

    def rebalance_timeout_ms(self) -> int:
        """The longest that any member asks to be waited for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """All members as the leader receives them."""
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(self.protocol_name))
            for member in self.members.values()
        )

    def as_metadata(self, assignments: dict[str, bytes]) -> GroupMetadata:
        """The group as its record holds it; a member without an assignment gets an empty one."""
        members = tuple(
            MemberMetadata(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata(self.protocol_name),
                assignments.get(member.member_id, b""),
            )
            for member in self.members.values()
        )
        return GroupMetadata(
            self.protocol_type or "",
            self.generation_id,
            self.protocol_name,
            self.leader_id,
            self.state_since_ms,
            members,
        )

    def _common_protocols(self) -> set[str]:
        names = [{protocol.name for protocol in member.protocols} for member in self.members.values()]
        return set.intersection(*names) if names else set()


def restore_group(group_id: str, stored: GroupMetadata, age_ms: int = 0) -> Group:
    """The group that a record of this age tells of: Stable with its members, or Empty."""
    group = Group(group_id, stored.state_since_ms, GroupState.STABLE if stored.members else GroupState.EMPTY)
    group.protocol_type = stored.protocol_type or None
    group.protocol_name = stored.protocol_name
    group.generation_id = stored.generation_id
    group.emptied_age_ms = age_ms
    group.is_stored = True
    for told in stored.members:
        protocols = (Protocol(stored.protocol_name or "", told.subscription),)
        group.add(
            Member(
                told.member_id,
                told.instance_id,
                told.client_id,
                told.client_host,
                told.session_timeout_ms,
                told.rebalance_timeout_ms,
                protocols,
                told.assignment,
            )
        )
    if stored.leader_id in group.members:
        group.leader_id = stored.leader_id
    return group
