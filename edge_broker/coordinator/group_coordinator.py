"""The group coordinator: who is in which group, who waits for what, which offsets are committed.

Contains: the rules by which JoinGroup, SyncGroup, Heartbeat, LeaveGroup and OffsetCommit are taken or refused.
Does not contain: clocks, chance, wire messages, storage, the consequences of an accepted call (rebalances.py),
states and their transitions (group.py).
Source: Apache Kafka 4.3's classic groups; KIP-345 (static members), KIP-394 (member ids), KIP-559 (protocol in
SyncGroup), KIP-814 (static leaders skip assigning).

Where this differs from Kafka, on purpose:
- a request that waits and is repeated by its member is answered REBALANCE_IN_PROGRESS, not left for ever;
- a static member may come back into a full group;
- a member whose connection went away while it waited is dropped after its session timeout, even during a rebalance;
- an idle group that was never stored is forgotten at once;
- a member id that was given out but not used leaves without a rebalance.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from functools import partial

from edge_broker.coordinator.group import Group, GroupState, Member, restore_group
from edge_broker.coordinator.group_memory import GROUP_BYTES, MEMBER_BYTES, Memory, protocols_bytes, said_bytes
from edge_broker.coordinator.group_memory_limit import Room
from edge_broker.coordinator.group_requests import (
    NO_EPOCH,
    NOBODY,
    STEADY,
    ClockLead,
    Commit,
    GroupEffects,
    GroupSettings,
    Join,
    JoinResult,
    Leave,
    LeaveResult,
    LeftMember,
    Sync,
    SyncResult,
)
from edge_broker.coordinator.offset_records import (
    UNIQUE_ID_BYTES_MAX,
    GroupKey,
    OffsetKey,
    Record,
    RecordFormatError,
    group_key,
    read_group_value,
    read_key,
    read_offset_value,
    storable,
)
from edge_broker.coordinator.offsets import CommittedOffsets, check_commit, commit_result
from edge_broker.coordinator.rebalances import Rebalances, answer_waiting, join_result, sync_result
from edge_broker.coordinator.storage_errors import group_error
from edge_broker.coordinator.subscriptions import CONSUMER, subscribed_topics
from edge_broker.errors import ErrorCode

NO_AGES: Mapping[bytes, int] = {}


class GroupCoordinator:
    """The groups of one partition of `__consumer_offsets`; every call runs to its end on one loop.

    In a cluster it is good for one leader `epoch` of the partition.
    """

    def __init__(self, settings: GroupSettings, partition: int = 0, epoch: int = NO_EPOCH) -> None:
        self.settings = settings
        self.partition = partition
        self.epoch = epoch
        self.offsets = CommittedOffsets()
        self.groups: dict[str, Group] = {}
        self.load_notes: list[str] = []
        self._rebalances = Rebalances(settings, self.groups, self.offsets, partition, epoch)
        self.memory = Memory(self.groups)
        self.room = Room(settings.groups_bytes_max)
        self.room.coordinators.append(self)

    def move(self, room: Room) -> None:
        """Share this room with other coordinators."""
        self.room.coordinators.remove(self)
        self.room = room
        room.coordinators.append(self)

    @property
    def clock_lead(self) -> ClockLead:
        """How far the clocks are ahead of `now_ms`; the event loop tells, once a second."""
        return self._rebalances.clock_lead

    @clock_lead.setter
    def clock_lead(self, clock_lead: ClockLead) -> None:
        self._rebalances.clock_lead = clock_lead

    def effects(self, now_ms: int) -> GroupEffects:
        """The effects of a call at `now_ms`, none yet."""
        return self._rebalances.effects(now_ms)

    def next_deadline_ms(self) -> int | None:
        """When `expire` has something to do next; None when nothing is pending."""
        return self._rebalances.next_deadline_ms()

    def expire(self, now_ms: int) -> GroupEffects:
        """Do whatever is due at `now_ms`."""
        return self._rebalances.expire(now_ms)

    def forget(self, group_id: str, token: int, now_ms: int) -> None:
        """The connection that waited under `token` is gone; its member has its session timeout to come back."""
        self._rebalances.forget(group_id, token, now_ms)

    def stop(self, now_ms: int) -> GroupEffects:
        """The broker stops, or another one leads: waiting clients must look for a coordinator, each group is Dead."""
        return self._rebalances.stop(now_ms)

    def join(self, join: Join, *, unique_id: str, now_ms: int) -> GroupEffects:
        """JoinGroup; `unique_id` (a fresh UUID, at most 64 characters) makes the member id of a new member."""
        assert len(unique_id) <= UNIQUE_ID_BYTES_MAX
        effects = self.effects(now_ms)
        group = self.groups.get(join.group_id)
        error = self._join_error(join, group)
        if error is not None:
            effects.answer(join.token, JoinResult(error, join.member_id))
            return effects
        if not self._has_memory(join, group, effects):
            effects.answer(join.token, JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, join.member_id))
            return effects
        group = self.groups.get(join.group_id)  # making room may have taken it away
        if group is None:
            if join.member_id:
                effects.answer(join.token, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, join.member_id))
                return effects
            group = self.groups[join.group_id] = Group(join.group_id, effects.wall_ms)
        if not self._has_room(group, join):
            self._turn_away(group, join, effects)
        elif not group.follows(join.protocol_type, join.protocols):
            effects.answer(join.token, JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, join.member_id))
        elif join.member_id:
            self._join_known(group, join, effects)
        else:
            self._join_unknown(group, join, unique_id, effects)
        self._rebalances.forget_if_idle(group)
        self.memory.count(join.group_id)
        return effects

    def _has_memory(self, join: Join, group: Group | None, effects: GroupEffects) -> bool:
        """Whether the member may say so much: as one of its group, and with all groups together."""
        said = protocols_bytes(join.protocols)
        others = 0 if group is None else said_bytes(group, join.member_id)
        if others + said > self.settings.group_bytes_max:
            return False
        size = said + MEMBER_BYTES + (GROUP_BYTES if group is None else 0)
        return self.room.make(size, join.member_id, self, effects)

    def release_member(self, group: Group, member_id: str, effects: GroupEffects) -> None:
        """Drop a member without a client, or a member id that no client came back with."""
        if self.groups.get(group.group_id) is group:
            self._rebalances.release_member(group, member_id, effects)
            self.memory.count(group.group_id)

    def _join_error(self, join: Join, group: Group | None) -> ErrorCode | None:
        if not join.group_id or not storable(join.group_id):
            return ErrorCode.INVALID_GROUP_ID
        shortest, longest = self.settings.min_session_timeout_ms, self.settings.max_session_timeout_ms
        if not shortest <= join.session_timeout_ms <= longest:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        names = [join.instance_id or "", join.client_id, join.client_host, join.protocol_type]
        if not all(map(storable, (*names, *(protocol.name for protocol in join.protocols)))):
            return ErrorCode.INVALID_REQUEST
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID if join.member_id else None
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if group.state is GroupState.DEAD else None

    def _has_room(self, group: Group, join: Join) -> bool:
        """During a rebalance the members that have joined count, so that the last to come back are turned away."""
        if group.state is GroupState.EMPTY or join.instance_id in group.static_ids:
            return True
        member = group.members.get(join.member_id)
        if group.state is not GroupState.PREPARING_REBALANCE:
            return member is not None or len(group.members) < self.settings.group_size_max
        joined_count = sum(other.join_token is not None for other in group.members.values())
        return joined_count < self.settings.group_size_max or (member is not None and member.join_token is not None)

    def _turn_away(self, group: Group, join: Join, effects: GroupEffects) -> None:
        self._rebalances.drop(group, join.member_id, ErrorCode.UNKNOWN_MEMBER_ID, effects)
        effects.answer(join.token, JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, ""))
        self._rebalances.complete_join_if_all_joined(group, effects)

    def _join_unknown(self, group: Group, join: Join, unique_id: str, effects: GroupEffects) -> None:
        member_id = f"{join.client_id if join.instance_id is None else join.instance_id}-{unique_id}"
        known_id = None if join.instance_id is None else group.static_ids.get(join.instance_id)
        if known_id is not None:
            self._rejoin_static(group, group.members[known_id], join, member_id, effects)
        elif join.instance_id is None and join.member_id_required:
            self._rebalances.await_pending(group, member_id, join.session_timeout_ms, effects.now_ms)
            effects.answer(join.token, JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add(group, join, member_id, effects)

    def _join_known(self, group: Group, join: Join, effects: GroupEffects) -> None:
        if join.member_id in group.pending_ids and join.instance_id is None:
            self._add(group, join, join.member_id, effects)
            return
        error = group.check_member(join.member_id, join.instance_id)
        if error is not None:
            effects.answer(join.token, JoinResult(error, join.member_id))
            return
        member = group.members[join.member_id]
        preparing = group.state is GroupState.PREPARING_REBALANCE
        # The leader may join again to have a change assigned that the members' metadata does not show (new partitions).
        insists = group.state is GroupState.STABLE and group.leader_id == member.member_id
        if preparing or insists or member.protocols != join.protocols:
            _update(member, join, effects)
            self._rebalances.rebalance(group, effects)
        else:
            effects.answer(join.token, join_result(group, member))

    def _add(self, group: Group, join: Join, member_id: str, effects: GroupEffects) -> None:
        member = Member(
            member_id,
            join.instance_id,
            join.client_id,
            join.client_host,
            join.session_timeout_ms,
            _rebalance_timeout_ms(join),
            join.protocols,
            peer=join.peer,
            join_token=join.token,
            is_new=True,
        )
        group.member_came = True
        if not group.members:
            group.protocol_type = join.protocol_type
        group.add(member)
        self._rebalances.await_new(group, group.members[member_id], effects.now_ms)
        self._rebalances.rebalance(group, effects)

    def _rejoin_static(self, group: Group, member: Member, join: Join, member_id: str, effects: GroupEffects) -> None:
        """A static member came back without its id: it takes the place of its former self, which is fenced."""
        leader_before = group.leader_id
        answer_waiting(member, ErrorCode.FENCED_INSTANCE_ID, effects)
        self._rebalances.end_session(group, member.member_id)
        group.replace(member, member_id)
        member.is_new = False
        _update(member, join, effects)
        self._rebalances.renew_session(group, member, effects.now_ms)
        if group.state is GroupState.STABLE and group.vote() == group.protocol_name:
            self._keep_assignment(group, member, join, leader_before, effects)
        else:
            # In CompletingRebalance the leader may assign to the former id, so that everyone must join again.
            self._rebalances.rebalance(group, effects)

    def _keep_assignment(
        self, group: Group, member: Member, join: Join, leader_before: str | None, effects: GroupEffects
    ) -> None:
        """No rebalance: the new id is stored, then the member learns of the generation that goes on (KIP-345)."""
        generation_id, member_id = group.generation_id, member.member_id

        def after(error: ErrorCode, later: GroupEffects) -> None:
            still = group.state is GroupState.STABLE and group.generation_id == generation_id
            token = member.join_token
            if not still or member.member_id != member_id or token not in (join.token, NOBODY):
                return  # a rebalance took it along, or it came back once more
            member.join_token = None
            self._rebalances.renew_session(group, member, later.now_ms)
            failed = error is not ErrorCode.NONE
            result = JoinResult(group_error(error), "") if failed else _rejoin(group, member, join, leader_before)
            later.answer(token, result)

        assignments = {other.member_id: other.assignment or b"" for other in group.members.values()}
        self._rebalances.store(group, assignments, effects)
        effects.store([], after)

    def sync(self, sync: Sync, now_ms: int) -> GroupEffects:
        """SyncGroup: a member asks for its assignment; the leader brings everybody's."""
        effects = self.effects(now_ms)
        group = self.groups.get(sync.group_id)
        error = _sync_error(group, sync)
        if group is None or error is not None:
            effects.answer(sync.token, SyncResult(error or ErrorCode.UNKNOWN_MEMBER_ID))
            return effects
        member = group.members[sync.member_id]
        brings = sum(len(name) + len(assignment) for name, assignment in sync.assignments)
        if group.leader_id == member.member_id and brings and not self._has_memory_for(group, brings, effects):
            effects.answer(sync.token, SyncResult(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return effects
        self._rebalances.sync_arrived(group, member.member_id)
        if group.state is GroupState.STABLE:
            effects.answer(sync.token, sync_result(group, member))
            return effects
        if member.sync_token is not None:
            effects.answer(member.sync_token, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_token = sync.token
        if group.leader_id == member.member_id and group.storing_generation_id != group.generation_id:
            self._rebalances.store_assignment(group, dict(sync.assignments), effects)
        return effects

    def _has_memory_for(self, group: Group, brings: int, effects: GroupEffects) -> bool:
        if said_bytes(group) + brings > self.settings.group_bytes_max:
            return False
        return self.room.make(brings, "", self, effects)

    def heartbeat(
        self,
        group_id: str,
        generation_id: int,
        member_id: str,
        instance_id: str | None,
        now_ms: int,
        *,
        peer: str = "",
    ) -> ErrorCode:
        """Heartbeat: renews the session; REBALANCE_IN_PROGRESS asks the member to join again."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = group.check_member(member_id, instance_id)
        if error is not None:
            return error
        if generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        group.members[member_id].peer = peer
        self._rebalances.renew_session(group, group.members[member_id], now_ms)
        rebalancing = group.state is GroupState.PREPARING_REBALANCE
        return ErrorCode.REBALANCE_IN_PROGRESS if rebalancing else ErrorCode.NONE

    def leave(self, leave: Leave, now_ms: int) -> GroupEffects:
        """LeaveGroup; answered after the sync when the group became empty by it."""
        effects = self.effects(now_ms)
        if not leave.group_id:
            effects.answer(leave.token, LeaveResult(ErrorCode.INVALID_GROUP_ID))
            return effects
        group = self.groups.get(leave.group_id)
        if group is None:
            left = tuple(LeftMember(*who, ErrorCode.UNKNOWN_MEMBER_ID) for who in leave.members)
            effects.answer(leave.token, LeaveResult(ErrorCode.NONE, left))
            return effects
        if group.state is GroupState.DEAD:
            effects.answer(leave.token, LeaveResult(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return effects
        size = len(group.members)
        left = tuple(LeftMember(*who, self._leave_one(group, *who, effects)) for who in leave.members)
        if len(group.members) < size:
            self._rebalances.rebalance(group, effects)
        else:
            self._rebalances.complete_join_if_all_joined(group, effects)
        self._rebalances.forget_if_idle(group)
        self.memory.count(leave.group_id)
        if effects.append:
            effects.store([], partial(_answer_leave, leave.token, left))
        else:
            _answer_leave(leave.token, left, ErrorCode.NONE, effects)
        return effects

    def _leave_one(self, group: Group, member_id: str, instance_id: str | None, effects: GroupEffects) -> ErrorCode:
        if not member_id:
            static_id = None if instance_id is None else group.static_ids.get(instance_id)
            if static_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = static_id
        elif member_id not in group.pending_ids:
            error = group.check_member(member_id, instance_id)
            if error is not None:
                return error
        self._rebalances.drop(group, member_id, ErrorCode.UNKNOWN_MEMBER_ID, effects)
        return ErrorCode.NONE

    def commit(self, commit: Commit, now_ms: int) -> GroupEffects:
        """OffsetCommit: answered, and visible to OffsetFetch, once it is on disk."""
        effects = self.effects(now_ms)
        group = self.groups.get(commit.group_id)
        error = check_commit(commit, group)
        if error is not ErrorCode.NONE:
            effects.answer(commit.token, commit_result(commit, {}, error))
            return effects
        if group is not None and commit.member_id in group.members:
            self._rebalances.renew_session(group, group.members[commit.member_id], now_ms)
        full = self.room.is_full()
        if full:
            self.room.recount(now_ms)
            full = self.room.is_full()
        self.offsets.commit(commit, self.settings.offset_metadata_max, effects, full=full)
        if effects.append:
            effects.store([], partial(self._commit_stored, commit.group_id))
        return effects

    def _commit_stored(self, group_id: str, error: ErrorCode, later: GroupEffects) -> None:
        if error is ErrorCode.NONE and group_id not in self.groups:
            self.groups[group_id] = Group(group_id, later.wall_ms)
            self.memory.count(group_id)

    def check_delete(self, group_id: str) -> ErrorCode:
        """Whether DeleteGroups may take this group: NONE or why not."""
        group = self.groups.get(group_id)
        if group is None or group.state is GroupState.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.NONE if group.state is GroupState.EMPTY else ErrorCode.NON_EMPTY_GROUP

    def check_offset_delete(self, group_id: str) -> ErrorCode:
        """Whether OffsetDelete may take offsets of this group: NONE or why not."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        error = self.check_delete(group_id)
        uses_topics = error == ErrorCode.NON_EMPTY_GROUP and self.groups[group_id].protocol_type == CONSUMER
        return ErrorCode.NONE if uses_topics else error

    def subscribed_topics(self, group_id: str) -> Container[str]:
        """The topics that the group's members read; their offsets of it are in use."""
        return subscribed_topics(self.groups[group_id])

    def is_unused(self, group_id: str, topic: str, is_old: Callable[[int], bool]) -> bool:
        """Whether the group's offsets of a topic are unused, once they are old (KIP-211).

        It has had no members for long (`is_old` says it of an age), or they do not subscribe to the topic.
        """
        group = self.groups.get(group_id)
        if group is None:
            return False
        if group.state is GroupState.EMPTY:
            return is_old(group.emptied_age_ms)
        consumes = group.state is GroupState.STABLE and group.protocol_type == CONSUMER
        return consumes and topic not in subscribed_topics(group)

    def is_over(self, group_id: str, is_old: Callable[[int], bool]) -> bool:
        """Whether a group is long without members, and has no offsets."""
        group = self.groups.get(group_id)
        if group is None or group.state is not GroupState.EMPTY:
            return False
        return is_old(group.emptied_age_ms) and not self.offsets.keys_of(group_id)

    def drop_offsets(self, group_id: str, keys: Collection[OffsetKey], now_ms: int) -> GroupEffects:
        """Drop committed offsets of a group, and the group, if nothing tells of it any more."""
        effects = self.effects(now_ms)
        self.offsets.drop(keys, effects)
        if effects.append:
            effects.store([], partial(self._forget_if_unstored, group_id))
        return effects

    def drop_group(self, group_id: str, now_ms: int) -> GroupEffects:
        """Drop the record of an empty group, after its offsets; a group that a member joins meanwhile stays."""
        effects = self.effects(now_ms)
        group = self.groups.get(group_id)
        if group is not None and group.is_stored:
            group.is_stored = False  # unless it is stored again meanwhile
            effects.store([(group_key(group_id), None)], partial(self._removal_logged, group))
        elif group is not None:
            self._forget_if_unstored(group_id, ErrorCode.NONE, effects)
        return effects

    def _removal_logged(self, group: Group, error: ErrorCode, later: GroupEffects) -> None:
        group.is_stored |= error is not ErrorCode.NONE
        self._forget_if_unstored(group.group_id, error, later)

    def _forget_if_unstored(self, group_id: str, error: ErrorCode, later: GroupEffects) -> None:
        group = self.groups.get(group_id)
        if error is ErrorCode.NONE and group is not None and not group.is_stored:
            self._rebalances.forget_if_idle(group)
            self.memory.count(group_id)

    def forget_topics(self, topics: Collection[str], now_ms: int) -> GroupEffects:
        """Drop the offsets of deleted topics, so that a new topic of the same name is read from its beginning."""
        effects = self.effects(now_ms)
        self.offsets.forget_topics(topics, effects)
        return effects

    def forget_at_once(self, topics: Collection[str], now_ms: int) -> tuple[GroupEffects, list[OffsetKey]]:
        """Drop the offsets of topics that are gone already, before anybody asks for one; with what is to be `bury`ed
        if the log does not keep it.
        """
        effects = self.effects(now_ms)
        return effects, self.offsets.forget_at_once(topics, effects)

    def bury(self, keys: Collection[OffsetKey], now_ms: int) -> GroupEffects:
        """Tell the log once more that these offsets are gone, but for those that were committed again."""
        effects = self.effects(now_ms)
        self.offsets.bury(keys, effects)
        return effects

    @classmethod
    def load(
        cls,
        settings: GroupSettings,
        records: Iterable[Record],
        now_ms: int,
        *,
        partition: int = 0,
        epoch: int = NO_EPOCH,
        clock_lead: ClockLead = STEADY,
        ages_ms: Mapping[bytes, int] = NO_AGES,
    ) -> GroupCoordinator:
        """Rebuild from a partition of `__consumer_offsets`, oldest first; members have their session timeout to speak.

        `ages_ms` has the age of each key that was stored with it; the others count as of now. Records that cannot be
        read are passed over, one sentence each in `load_notes`.
        """
        coordinator = cls(settings, partition, epoch)
        coordinator.clock_lead = clock_lead
        age_ms = now_ms + clock_lead.age_ms
        for number, (key, value) in enumerate(records):
            try:
                coordinator._replay(key, value, ages_ms.get(key, age_ms))
            except RecordFormatError as error:
                coordinator.load_notes.append(f"record {number} of __consumer_offsets was passed over: {error}")
        for group_id in coordinator.offsets.groups():
            coordinator.groups.setdefault(group_id, Group(group_id, now_ms + clock_lead.wall_ms))
        nothing = coordinator.effects(now_ms)
        for group in coordinator.groups.values():
            for member in group.members.values():
                coordinator._rebalances.renew_session(group, member, now_ms)
            if len(group.members) > settings.group_size_max:
                coordinator._rebalances.prepare_rebalance(group, nothing)
        coordinator.memory.count_all(now_ms)
        assert not nothing.answers, "nobody can wait yet"
        assert not nothing.append, "a group with members does not become empty by a rebalance that has just begun"
        return coordinator

    def _replay(self, key: bytes, value: bytes | None, age_ms: int) -> None:
        known = read_key(key)
        if isinstance(known, OffsetKey):
            self.offsets.put(known, None if value is None else read_offset_value(value, age_ms))
        elif isinstance(known, GroupKey) and value is not None:
            self.groups[known.group_id] = restore_group(known.group_id, read_group_value(value), age_ms)
        elif isinstance(known, GroupKey):
            self.groups.pop(known.group_id, None)


def _rebalance_timeout_ms(join: Join) -> int:
    return join.session_timeout_ms if join.rebalance_timeout_ms < 0 else join.rebalance_timeout_ms


def _update(member: Member, join: Join, effects: GroupEffects) -> None:
    """Take over what the member says now; if an earlier JoinGroup of it still waits, that one is let go."""
    if member.join_token is not None:
        effects.answer(member.join_token, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    member.protocols = join.protocols
    member.peer = join.peer
    member.session_timeout_ms = join.session_timeout_ms
    member.rebalance_timeout_ms = _rebalance_timeout_ms(join)
    member.join_token = join.token


def _rejoin(group: Group, member: Member, join: Join, leader_before: str | None) -> JoinResult:
    """Before version 9 name another leader to a static leader, so that it does not assign."""
    result = join_result(group, member)
    if join.can_skip_assignment:
        return result._replace(skip_assignment=group.leader_id == member.member_id)
    return result._replace(leader_id=leader_before or "", members=())


def _sync_error(group: Group | None, sync: Sync) -> ErrorCode | None:
    if not sync.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.check_member(sync.member_id, sync.instance_id)
    if error is not None:
        return error
    if sync.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if sync.protocol_type not in (None, group.protocol_type) or sync.protocol_name not in (None, group.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is GroupState.PREPARING_REBALANCE else None


def _answer_leave(token: int, left: tuple[LeftMember, ...], error: ErrorCode, effects: GroupEffects) -> None:
    failed = error is not ErrorCode.NONE
    effects.answer(token, LeaveResult(group_error(error)) if failed else LeaveResult(ErrorCode.NONE, left))
