"""Requests and results of the group coordinator, as plain values.

Contains: calls, results, and `GroupEffects`, what one call brought about. Does not contain: wire messages and API
versions; handlers translate, and say what a version can do by the flags below.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from edge_broker.coordinator.offset_records import Record
from edge_broker.errors import ErrorCode

NO_GENERATION = -1
NO_EPOCH = -1
"""Of a single node: no other broker ever had its coordinators."""
NOBODY = -1
"""The token of a waiting member whose connection is gone; tokens of requests are never negative."""


class GroupSettings(NamedTuple):
    """The broker keys group.* and offset.metadata.max.bytes, in milliseconds and characters; memory in bytes."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 0
    group_size_max: int = 2_147_483_647
    offset_metadata_max: int = 4_096
    group_bytes_max: int = 1_048_588
    groups_bytes_max: int = 16_777_216


class Protocol(NamedTuple):
    """One way of assigning that a member can follow, with the member's own metadata for it."""

    name: str
    metadata: bytes


class Join(NamedTuple):
    """JoinGroup. `rebalance_timeout_ms` is -1 where the version has none (0); an empty member_id asks for one."""

    token: int
    group_id: str
    member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    member_id_required: bool
    """Version 4 and up: a new dynamic member is first sent away with its id (KIP-394)."""
    instance_id: str | None = None
    peer: str = ""
    """The connection that it came over."""
    can_skip_assignment: bool = False
    """Version 9 and up: a static leader that comes back may be told not to assign (KIP-814)."""


class JoinedMember(NamedTuple):
    """One member as the leader sees it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    """JoinGroup's answer; `members` is filled for the leader only. A missing name goes out as "" below version 7."""

    error: ErrorCode
    member_id: str
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class Sync(NamedTuple):
    """SyncGroup; protocol type and name are None below version 5, `assignments` is the leader's."""

    token: int
    group_id: str
    generation_id: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


class SyncResult(NamedTuple):
    """SyncGroup's answer."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class Leaver(NamedTuple):
    """A member that leaves; with an empty member_id an administrator removes the static member `instance_id`."""

    member_id: str
    instance_id: str | None


class Leave(NamedTuple):
    """LeaveGroup; one member below version 3."""

    token: int
    group_id: str
    members: tuple[Leaver, ...]


class LeftMember(NamedTuple):
    """The result for one leaver."""

    member_id: str
    instance_id: str | None
    error: ErrorCode


class LeaveResult(NamedTuple):
    """LeaveGroup's answer; below version 3 the one member's error is the error of the whole."""

    error: ErrorCode
    members: tuple[LeftMember, ...] = ()


class CommitPartition(NamedTuple):
    """An offset to commit; leader_epoch -1 means unknown, no metadata counts as empty."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str | None


class Commit(NamedTuple):
    """OffsetCommit. A consumer outside any group sends generation -1 and no member. Retention times are ignored."""

    token: int
    group_id: str
    partitions: tuple[CommitPartition, ...]
    generation_id: int = NO_GENERATION
    member_id: str = ""
    instance_id: str | None = None
    knows_missing_group: bool = False
    """Version 9 and up: a missing group is GROUP_ID_NOT_FOUND, before that ILLEGAL_GENERATION."""


class CommittedPartition(NamedTuple):
    """The result for one partition of a commit."""

    topic: str
    partition: int
    error: ErrorCode


class CommitResult(NamedTuple):
    """OffsetCommit's answer, partitions in the order of the request."""

    partitions: tuple[CommittedPartition, ...]


class DescribedMember(NamedTuple):
    """One member as DescribeGroups shows it; metadata is empty unless the group is Stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(NamedTuple):
    """One group as DescribeGroups shows it; a missing group is Dead and, from version 6, GROUP_ID_NOT_FOUND."""

    error: ErrorCode
    error_message: str | None
    group_id: str
    state: str
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[DescribedMember, ...] = ()


class ListedGroup(NamedTuple):
    """One group as ListGroups shows it."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


Result: TypeAlias = JoinResult | SyncResult | LeaveResult | CommitResult


class Answer(NamedTuple):
    """The response for the request with this token."""

    token: int
    result: Result


class ClockLead(NamedTuple):
    """The differences from the coordinator's `now_ms` to the time of day, and the age of the data directory."""

    wall_ms: int = 0
    age_ms: int = 0


STEADY = ClockLead()

AfterSync: TypeAlias = "Callable[[ErrorCode, GroupEffects], None]"


class GroupEffects:
    """The effects of one call.

    `answers` are due now. `append` must be appended to `__consumer_offsets`, in this order and in the order of the
    calls. Once that is synced call `append_synced`, or `append_failed` when it was refused or lost, exactly once
    and again in the order of the calls, and handle what that returns in the same way. Nothing to append means
    nothing to call. All records are of `partition`, and of the leader `epoch` that its coordinator was loaded in:
    in no other may they be appended. `elsewhere` is what the call brought about in other partitions.
    """

    __slots__ = ("_after", "answers", "append", "clock_lead", "elsewhere", "epoch", "now_ms", "partition")

    def __init__(self, now_ms: int, clock_lead: ClockLead = STEADY, partition: int = 0, epoch: int = NO_EPOCH) -> None:
        self.now_ms = now_ms
        self.clock_lead = clock_lead
        self.partition = partition
        self.epoch = epoch
        self.answers: list[Answer] = []
        self.append: list[Record] = []
        self.elsewhere: list[GroupEffects] = []
        self._after: list[AfterSync] = []

    @property
    def wall_ms(self) -> int:
        """The time of day, for records; deadlines go by `now_ms`."""
        return self.now_ms + self.clock_lead.wall_ms

    @property
    def age_ms(self) -> int:
        """The age of the data directory, by which offsets go (storage/files/data_age.py)."""
        return self.now_ms + self.clock_lead.age_ms

    def append_synced(self, now_ms: int) -> "GroupEffects":
        """Return the effects that become due as `append` is on disk."""
        return self._complete(ErrorCode.NONE, now_ms)

    def append_failed(self, error: ErrorCode, now_ms: int) -> "GroupEffects":
        """Return the effects due as `append` could not be stored; `error` is the log's; clients get Kafka's for it."""
        return self._complete(error, now_ms)

    def answer(self, token: int, result: Result) -> None:
        """Answer now, unless no client waits any more."""
        if token != NOBODY:
            self.answers.append(Answer(token, result))

    def store(self, records: list[Record], after: "AfterSync | None" = None) -> None:
        """Append records; `after` gets NONE or the failure, and the effects to add to."""
        self.append += records
        if after is not None:
            self._after.append(after)

    def _complete(self, error: ErrorCode, now_ms: int) -> "GroupEffects":
        later = GroupEffects(now_ms, self.clock_lead, self.partition, self.epoch)
        after, self._after = self._after, []
        for call in after:
            call(error, later)
        return later
