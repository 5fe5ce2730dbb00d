"""Rebalances: from the first JoinGroup to the last SyncGroup, and everything that is due at some time.

Contains: the groups in memory, their deadlines, and what happens when one passes. Does not contain: checks of
requests (group_coordinator.py), clocks. The states and which may follow which stand in group.py.
Source: Apache Kafka 4.3's classic groups.

| deadline | set when | then |
|---|---|---|
| join | a rebalance begins: the initial delay, or the longest rebalance timeout | go on with the members that joined |
| sync | all joined: the longest rebalance timeout | drop members without a SyncGroup, rebalance |
| session | a heartbeat, a commit, an answer after waiting; a new member: 5 minutes | drop the member, rebalance |
"""

from __future__ import annotations

from typing import Literal

from edge_broker.coordinator.deadlines import Deadlines
from edge_broker.coordinator.group import TRANSITIONS, Group, GroupState, Member
from edge_broker.coordinator.group_requests import (
    NO_EPOCH,
    NOBODY,
    ClockLead,
    GroupEffects,
    GroupSettings,
    JoinResult,
    SyncResult,
)
from edge_broker.coordinator.offset_records import group_key, group_value
from edge_broker.coordinator.offsets import CommittedOffsets
from edge_broker.coordinator.storage_errors import group_error
from edge_broker.errors import ErrorCode

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
POSTPONED_JOIN_MS_MIN = 100

DeadlineKey = tuple[Literal["join", "session", "sync"], str, str]
"""A deadline: its kind, its group, its member ("" except for sessions)."""


class Rebalances:
    """A coordinator's groups and their deadlines; `groups` and `offsets` are shared with it."""

    def __init__(
        self,
        settings: GroupSettings,
        groups: dict[str, Group],
        offsets: CommittedOffsets,
        partition: int,
        epoch: int = NO_EPOCH,
    ) -> None:
        self.settings = settings
        self.groups = groups
        self.offsets = offsets
        self.partition = partition
        self.epoch = epoch
        self.clock_lead = ClockLead()
        self._deadlines: Deadlines[DeadlineKey] = Deadlines()

    def effects(self, now_ms: int) -> GroupEffects:
        """The effects of a call at `now_ms`, none yet."""
        return GroupEffects(now_ms, self.clock_lead, self.partition, self.epoch)

    def next_deadline_ms(self) -> int | None:
        """When `expire` has something to do next; None when nothing is pending."""
        return self._deadlines.next_ms()

    def expire(self, now_ms: int) -> GroupEffects:
        """Do whatever is due at `now_ms`."""
        effects = self.effects(now_ms)
        while (due := self._deadlines.take_due(now_ms)) is not None:
            kind, group_id, member_id = due
            group = self.groups[group_id]
            if kind == "join":
                self._join_time_is_up(group, effects)
            elif kind == "sync":
                self._sync_time_is_up(group, effects)
            else:
                self._session_ended(group, member_id, effects)
        return effects

    def forget(self, group_id: str, token: int, now_ms: int) -> None:
        """The connection that waited under `token` is gone; its member has its session timeout to come back."""
        group = self.groups.get(group_id)
        for member in group.members.values() if group is not None else ():
            if token not in (member.join_token, member.sync_token):
                continue
            if member.join_token == token:
                member.join_token = NOBODY
            else:
                member.sync_token = NOBODY
            assert group is not None
            self.renew_session(group, member, now_ms)
            return

    def stop(self, now_ms: int) -> GroupEffects:
        """The broker stops, or another one leads: waiting clients must look for a coordinator, each group is Dead."""
        effects = self.effects(now_ms)
        for group in self.groups.values():
            if group.state is GroupState.DEAD:
                continue
            for member in group.members.values():
                answer_waiting(member, ErrorCode.NOT_COORDINATOR, effects)
            self._cancel_all(group)
            group.enter(GroupState.DEAD, effects.wall_ms)
        return effects

    def rebalance(self, group: Group, effects: GroupEffects) -> None:
        """Begin a rebalance, or go on with the one in progress."""
        if GroupState.PREPARING_REBALANCE in TRANSITIONS[group.state]:
            self.prepare_rebalance(group, effects)
        else:
            self.complete_join_if_all_joined(group, effects)

    def prepare_rebalance(self, group: Group, effects: GroupEffects) -> None:
        """Begin a rebalance: members that wait for an assignment are sent to join again."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._abandon_sync(group, ErrorCode.REBALANCE_IN_PROGRESS, effects)
        self._deadlines.cancel(("sync", group.group_id, ""))
        group.unsynced_ids.clear()
        group.enter(GroupState.PREPARING_REBALANCE, effects.wall_ms)
        if group.previous_state is GroupState.EMPTY:
            self._begin_initial_delay(group, effects)
        elif group.all_joined():
            self._complete_join(group, effects)
        else:
            self._wait_for_joins(group, group.rebalance_timeout_ms(), effects)

    def _begin_initial_delay(self, group: Group, effects: GroupEffects) -> None:
        """The first members of a group get time for more to come, so that one rebalance serves them all."""
        group.initial_delay_ms = self.settings.initial_rebalance_delay_ms
        group.initial_delay_left_ms = max(group.rebalance_timeout_ms() - group.initial_delay_ms, 0)
        group.member_came = False
        if group.initial_delay_ms > 0:
            self._wait_for_joins(group, group.initial_delay_ms, effects)
        else:
            self._complete_join(group, effects)

    def _wait_for_joins(self, group: Group, wait_ms: int, effects: GroupEffects) -> None:
        self._deadlines.set(("join", group.group_id, ""), effects.now_ms + wait_ms)

    def _join_time_is_up(self, group: Group, effects: GroupEffects) -> None:
        initial = group.previous_state is GroupState.EMPTY
        if not (initial and group.member_came and group.initial_delay_left_ms > 0):
            self._complete_join(group, effects)
            return
        group.member_came = False
        waited_ms, left_ms = group.initial_delay_ms, group.initial_delay_left_ms
        group.initial_delay_ms = min(self.settings.initial_rebalance_delay_ms, left_ms)
        group.initial_delay_left_ms = max(left_ms - waited_ms, 0)
        self._wait_for_joins(group, group.initial_delay_ms, effects)

    def complete_join_if_all_joined(self, group: Group, effects: GroupEffects) -> None:
        """Go on with the rebalance if no member is left to wait for."""
        waiting = group.state is GroupState.PREPARING_REBALANCE and group.previous_state is not GroupState.EMPTY
        if waiting and group.all_joined():
            self._complete_join(group, effects)

    def _complete_join(self, group: Group, effects: GroupEffects) -> None:
        """Begin the next generation with those that joined; static members that did not stay for their session."""
        self._deadlines.cancel(("join", group.group_id, ""))
        for member in list(group.members.values()):
            if member.join_token is None and member.instance_id is None:
                self.drop(group, member.member_id, ErrorCode.UNKNOWN_MEMBER_ID, effects)
        if not group.elect_leader() and group.members:
            self._wait_for_joins(group, max(group.rebalance_timeout_ms(), POSTPONED_JOIN_MS_MIN), effects)
            return
        group.next_generation(effects.wall_ms)
        if group.state is GroupState.EMPTY:
            group.emptied_age_ms = effects.age_ms
            self.store(group, {}, effects)
            return
        for member in group.members.values():
            self._answer_join(group, member, effects)
        self._deadlines.set(("sync", group.group_id, ""), effects.now_ms + group.rebalance_timeout_ms())

    def _answer_join(self, group: Group, member: Member, effects: GroupEffects) -> None:
        if member.join_token is not None:
            effects.answer(member.join_token, join_result(group, member))
            member.join_token = None
        member.is_new = False
        member.assignment = None
        self.renew_session(group, member, effects.now_ms)

    def store_assignment(self, group: Group, assignments: dict[str, bytes], effects: GroupEffects) -> None:
        """The group is Stable, and everyone is answered, once the assignment is on disk."""
        generation_id = group.storing_generation_id = group.generation_id

        def after(error: ErrorCode, later: GroupEffects) -> None:
            if group.state is not GroupState.COMPLETING_REBALANCE or group.generation_id != generation_id:
                return  # the next rebalance has begun and told the waiting members
            if error is not ErrorCode.NONE:
                self._abandon_sync(group, group_error(error), later)
                self.prepare_rebalance(group, later)
                return
            group.enter(GroupState.STABLE, later.wall_ms)
            for member in group.members.values():
                member.assignment = assignments.get(member.member_id, b"")
                self._answer_sync(group, member, sync_result(group, member), later)

        self.store(group, assignments, effects)
        effects.store([], after)

    def _abandon_sync(self, group: Group, error: ErrorCode, effects: GroupEffects) -> None:
        for member in group.members.values():
            member.assignment = None
            self._answer_sync(group, member, SyncResult(error), effects)

    def _answer_sync(self, group: Group, member: Member, result: SyncResult, effects: GroupEffects) -> None:
        if member.sync_token is None:
            return
        effects.answer(member.sync_token, result)
        member.sync_token = None
        self.renew_session(group, member, effects.now_ms)

    def _sync_time_is_up(self, group: Group, effects: GroupEffects) -> None:
        for member_id in list(group.unsynced_ids):
            self.drop(group, member_id, ErrorCode.UNKNOWN_MEMBER_ID, effects)
        self.prepare_rebalance(group, effects)

    def _session_ended(self, group: Group, member_id: str, effects: GroupEffects) -> None:
        member = group.members.get(member_id)
        if member is not None and member.waits and not member.is_new and not _is_abandoned(member):
            return  # it waits for us; its session goes on with the answer
        self.drop(group, member_id, ErrorCode.UNKNOWN_MEMBER_ID, effects)
        if member is None:
            self.complete_join_if_all_joined(group, effects)
        else:
            self.rebalance(group, effects)
        self.forget_if_idle(group)

    def await_pending(self, group: Group, member_id: str, session_timeout_ms: int, now_ms: int) -> None:
        """Give an id out; the client has a session timeout to come back with it."""
        group.pending_ids.add(member_id)
        self._deadlines.set(("session", group.group_id, member_id), now_ms + session_timeout_ms)

    def await_new(self, group: Group, member: Member, now_ms: int) -> None:
        """A new member cannot send heartbeats before it knows its id, and may give up without a word."""
        self._deadlines.set(("session", group.group_id, member.member_id), now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)

    def sync_arrived(self, group: Group, member_id: str) -> None:
        """A member of this generation sent SyncGroup; after the last one the group is complete."""
        group.unsynced_ids.discard(member_id)
        if not group.unsynced_ids:
            self._deadlines.cancel(("sync", group.group_id, ""))

    def renew_session(self, group: Group, member: Member, now_ms: int) -> None:
        """Start the member's session again."""
        self._deadlines.set(("session", group.group_id, member.member_id), now_ms + member.session_timeout_ms)

    def end_session(self, group: Group, member_id: str) -> None:
        """No member is waited for under this id any more."""
        self._deadlines.cancel(("session", group.group_id, member_id))

    def drop(self, group: Group, member_id: str, error: ErrorCode, effects: GroupEffects) -> None:
        """Take a member or a pending id out and tell it if it waits; the caller decides about the rebalance."""
        member = group.members.get(member_id)
        if member is not None:
            answer_waiting(member, error, effects)
        group.remove(member_id)
        self.end_session(group, member_id)

    def release_member(self, group: Group, member_id: str, effects: GroupEffects) -> None:
        """Drop a member without a client, or a pending id, before its session ends."""
        was_member = member_id in group.members
        self.drop(group, member_id, ErrorCode.UNKNOWN_MEMBER_ID, effects)
        if was_member:
            self.rebalance(group, effects)
        else:
            self.complete_join_if_all_joined(group, effects)
        self.forget_if_idle(group)

    def forget_if_idle(self, group: Group) -> None:
        """A group that nothing tells of any more must not stay in memory for ever."""
        idle = group.state is GroupState.EMPTY and not group.members and not group.pending_ids
        if idle and not group.is_stored and group.group_id not in self.offsets.groups():
            self._cancel_all(group)
            group.enter(GroupState.DEAD, group.state_since_ms)
            del self.groups[group.group_id]

    def _cancel_all(self, group: Group) -> None:
        self._deadlines.cancel(("join", group.group_id, ""))
        self._deadlines.cancel(("sync", group.group_id, ""))
        for member_id in (*group.members, *group.pending_ids):
            self._deadlines.cancel(("session", group.group_id, member_id))

    def store(self, group: Group, assignments: dict[str, bytes], effects: GroupEffects) -> None:
        """Append the group's record as it is now, with these assignments."""
        group.is_stored = True
        effects.store([(group_key(group.group_id), group_value(group.as_metadata(assignments)))])


def join_result(group: Group, member: Member) -> JoinResult:
    """Return a member's view of the generation; its leader sees all members."""
    leads = group.leader_id == member.member_id
    return JoinResult(
        ErrorCode.NONE,
        member.member_id,
        group.generation_id,
        group.protocol_type,
        group.protocol_name,
        group.leader_id or "",
        members=group.joined_members() if leads else (),
    )


def sync_result(group: Group, member: Member) -> SyncResult:
    """Return a member's view of its assignment."""
    return SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment or b"")


def answer_waiting(member: Member, error: ErrorCode, effects: GroupEffects) -> None:
    """Answer whatever the member waits for with an error."""
    if member.join_token is not None:
        named = member.member_id if error is ErrorCode.FENCED_INSTANCE_ID else ""
        effects.answer(member.join_token, JoinResult(error, named))
        member.join_token = None
    if member.sync_token is not None:
        effects.answer(member.sync_token, SyncResult(error))
        member.sync_token = None


def _is_abandoned(member: Member) -> bool:
    """Whether the client of a waiting member is gone."""
    return NOBODY in (member.join_token, member.sync_token)
