"""Any program of members, time, disk and crashes, against what must always hold of groups and offsets.

- One leader per generation: the list of members goes to one member id of a generation, and no other.
- At most one assignment per generation and member, across crashes too, and none before it is on disk.
- Every token is answered at most once, and once at last when deadlines pass; a forgotten token never.
- No member of a Stable group is without an assignment, and states follow each other as the table says.
- What is answered is on disk: after a crash no acked commit is missing and none goes back.
- Replaying the appended records gives the same offsets, members, generations and assignments.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from edge_broker.coordinator.group import Group, GroupState, Member
from edge_broker.coordinator.group_coordinator import GroupCoordinator
from edge_broker.coordinator.group_requests import CommitResult, GroupSettings, JoinResult, Protocol, Result, SyncResult
from edge_broker.coordinator.offset_records import group_key, read_group_value
from edge_broker.errors import ErrorCode
from tests.support.groups import RANGE, STICKY, Site

PROTOCOLS = st.sampled_from([(RANGE,), (RANGE, STICKY), (STICKY, RANGE), (RANGE._replace(metadata=b"other"),)])
INSTANCES = st.sampled_from([None, None, "pi-1", "pi-2"])
PICK = st.integers(0, 30)
LONG_MS = 400_000


def result_member(group: Group | None, name: str) -> str:
    """The member id behind a member id or an instance id."""
    assert group is not None
    return group.static_ids.get(name, name)


def _committed(coordinator: GroupCoordinator) -> list[object]:
    """What is committed, but for ages: those of an old commit are told by its record, and this log has none."""
    return [
        (topic, partition, found and found._replace(age_ms=0))
        for topic, partitions in coordinator.offsets.fetch("group", None)
        for partition, found in partitions
    ]


class Groups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ids: list[tuple[str, str | None]] = [("stranger", None)]
        self.instances: dict[int, str | None] = {}
        self.syncs: dict[int, tuple[int, str]] = {}
        self.commits: dict[int, tuple[int, int]] = {}
        self.forgotten: set[int] = set()
        self.life = 0
        self.disk_failed = False
        self.leaders: dict[tuple[int, int], str] = {}
        self.assignments: dict[tuple[int, str], bytes] = {}
        self.acked: dict[int, int] = {}
        self.offset = 0
        self.begin(0)

    @initialize(initial_delay_ms=st.sampled_from([0, 0, 2_000]), size=st.integers(0, 3))
    def begin(self, initial_delay_ms: int, size: int = 0) -> None:
        settings = GroupSettings(initial_rebalance_delay_ms=initial_delay_ms, group_size_max=4)
        self.site = Site(settings, sync_at_once=False)
        self.site.on_answer = self.answered
        for instance_id in [None, "pi-1", "pi-2"][:size]:
            self.join_new(instance_id, (RANGE, STICKY), 3)
        self.site.wait(5_000)
        self.everyone_joins()
        self.everyone_syncs(0)
        self.sync_disk()

    def answered(self, token: int, result: Result) -> None:
        assert token not in self.forgotten
        if isinstance(result, JoinResult):
            if result.error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                self.ids.append((result.member_id, self.instances.get(token)))
            if result.error is ErrorCode.NONE and self.group and self.group.state is GroupState.STABLE:
                assert result.member_id in self.members_on_disk()
            if result.error is ErrorCode.NONE and result.members and not result.skip_assignment:
                leader = self.leaders.setdefault((self.life, result.generation_id), result.member_id)
                assert leader == result.member_id == result.leader_id
        elif isinstance(result, SyncResult) and result.error is ErrorCode.NONE:
            assignment = self.assignments.setdefault(self.syncs[token], result.assignment)
            assert assignment == result.assignment
            assert self.members_on_disk()[result_member(self.group, self.syncs[token][1])] == result.assignment
        elif isinstance(result, CommitResult) and result.partitions[0].error is ErrorCode.NONE:
            partition, offset = self.commits[token]
            self.acked[partition] = max(offset, self.acked.get(partition, 0))

    def members_on_disk(self) -> dict[str, bytes]:
        """Member ids and assignments by the newest synced record of the group."""
        values = [value for key, value in self.site.log[: self.site.durable_records] if key == group_key("group")]
        assert values
        assert values[-1] is not None
        return {member.member_id: member.assignment for member in read_group_value(values[-1]).members}

    @property
    def group(self) -> Group | None:
        return self.site.coordinator.groups.get("group")

    def present(self) -> list[Member]:
        """Members that can speak: a client knows no id before it was told, and a static one is told after the sync."""
        told = {member_id for member_id, _ in self.ids}
        return [member for member in self.group.members.values() if member.member_id in told] if self.group else []

    def pick(self, number: int) -> tuple[str, str | None]:
        """Some id that was given out, mostly of a present member."""
        present = self.present()
        if present and number % 8:
            member = present[number % len(present)]
            return member.member_id, member.instance_id
        return self.ids[number % len(self.ids)]

    @rule(instance_id=INSTANCES, protocols=PROTOCOLS, version=st.sampled_from([3, 8, 9]))
    def join_new(self, instance_id: str | None, protocols: tuple[Protocol, ...], version: int) -> None:
        self.join("", instance_id, protocols, version, 6_000)
        result = self.site.answers.get(self.site._tokens)
        if isinstance(result, JoinResult) and result.error is ErrorCode.MEMBER_ID_REQUIRED and version == 9:
            self.join(result.member_id, None, protocols, version, 6_000)

    @rule(number=PICK, protocols=PROTOCOLS, version=st.sampled_from([3, 9]), session_ms=st.sampled_from([6_000, 9_000]))
    def join_known(self, number: int, protocols: tuple[Protocol, ...], version: int, session_ms: int) -> None:
        self.join(*self.pick(number), protocols, version, session_ms)

    def join(
        self, member_id: str, instance_id: str | None, protocols: tuple[Protocol, ...], version: int, session_ms: int
    ) -> None:
        self.instances[self.site._tokens + 1] = instance_id
        self.site.join(
            member_id,
            instance_id=instance_id,
            protocols=protocols,
            version=version,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=session_ms * 2,
        )

    @rule(number=PICK, off_by=st.sampled_from([0, 0, 0, 0, -1, 1]))
    def sync(self, number: int, off_by: int) -> None:
        self.sync_one(*self.pick(number), off_by, number)

    @rule(number=PICK)
    def everyone_syncs(self, number: int) -> None:
        for member in self.present():
            self.sync_one(member.member_id, member.instance_id, 0, number)

    @rule()
    def everyone_joins(self) -> None:
        for member in self.present():
            self.join(member.member_id, member.instance_id, member.protocols, 9, 6_000)

    def sync_one(self, member_id: str, instance_id: str | None, off_by: int, number: int) -> None:
        group = self.group
        generation_id = (group.generation_id if group else 0) + off_by
        present = list(group.members)[number % 2 :] if group else []  # now and then the leader leaves one out
        content = b"%d by %d" % (number, self.site._tokens)
        self.syncs[self.site._tokens + 1] = (generation_id, instance_id or member_id)
        self.site.sync(member_id, generation_id, dict.fromkeys(present, content), instance_id=instance_id)

    @rule(number=PICK, off_by=st.sampled_from([0, 0, 1]))
    def heartbeat(self, number: int, off_by: int) -> None:
        member_id, instance_id = self.pick(number)
        self.site.heartbeat(member_id, (self.group.generation_id if self.group else 0) + off_by, instance_id)

    @rule(number=PICK, by_instance=st.booleans())
    def leave(self, number: int, by_instance: bool) -> None:
        if number % 3:
            return
        member_id, instance_id = self.pick(number)
        self.site.leave(("" if by_instance else member_id, instance_id))

    @rule(number=PICK, outside=st.booleans(), partition=st.integers(0, 2))
    def commit(self, number: int, outside: bool, partition: int) -> None:
        self.offset += 1
        self.commits[self.site._tokens + 1] = (partition, self.offset)
        generation_id = self.group.generation_id if self.group else 0
        if outside:
            self.site.commit(self.offset, partition=partition)
            return
        member_id, instance_id = self.pick(number)
        self.site.commit(
            self.offset,
            partition=partition,
            member_id=member_id,
            generation_id=generation_id,
            instance_id=instance_id,
        )

    @rule(number=PICK)
    def connection_lost(self, number: int) -> None:
        waiting = [
            token
            for member in (self.group.members.values() if self.group else ())
            for token in (member.join_token, member.sync_token)
            if token is not None and token >= 0
        ]
        if waiting:
            token = waiting[number % len(waiting)]
            self.forgotten.add(token)
            self.site.coordinator.forget("group", token, self.site.now_ms)

    @rule(wait_ms=st.sampled_from([1, 500, 2_000, 6_000]))
    def wait(self, wait_ms: int) -> None:
        self.site.wait(wait_ms)

    @rule()
    def a_generation(self) -> None:
        self.everyone_joins()
        self.everyone_syncs(0)
        self.sync_disk()

    @rule()
    def sync_disk(self) -> None:
        self.site.sync_disk()

    @rule(number=PICK)
    def disk_fails(self, number: int) -> None:
        if number % 4:
            return
        self.disk_failed = self.disk_failed or bool(self.site.unsynced)
        self.site.fail_disk()

    @rule(number=PICK, unsynced_kept=st.integers(0, 3))
    def crash(self, number: int, unsynced_kept: int) -> None:
        if number % 4:
            return
        self.life += 1
        self.disk_failed = False
        self.site.restart(unsynced_kept)

    @invariant()
    def stable_members_have_assignments(self) -> None:
        for group in self.site.coordinator.groups.values():
            if group.state is GroupState.STABLE:
                assert group.members
                assert all(member.assignment is not None for member in group.members.values())

    @invariant()
    def groups_are_consistent(self) -> None:
        for group in self.site.coordinator.groups.values():
            assert (group.leader_id in group.members) if group.members else group.leader_id is None
            assert {group.members[member_id].instance_id for member_id in group.static_ids.values()} == set(
                group.static_ids
            )
            assert group.unsynced_ids <= group.members.keys()
            assert not group.pending_ids & group.members.keys()
            assert group.state is not GroupState.EMPTY or not group.members
            if group.state is GroupState.COMPLETING_REBALANCE:
                assert all(member.join_token is None for member in group.members.values())

    @invariant()
    def nothing_due_is_left(self) -> None:
        self.site.wait(0)
        due_ms = self.site.coordinator.next_deadline_ms()
        assert due_ms is None or due_ms > self.site.now_ms

    @invariant()
    def acked_offsets_are_there(self) -> None:
        for partition, offset in self.acked.items():
            found = self.site.coordinator.offsets.get("group", "readings", partition)
            assert found is not None
            assert found.offset >= offset

    @invariant()
    def replaying_gives_the_same(self) -> None:
        if self.disk_failed or self.site.unsynced:
            return
        replayed = GroupCoordinator.load(self.site.settings, self.site.log, self.site.now_ms)
        assert not replayed.load_notes
        assert _committed(replayed) == _committed(self.site.coordinator)
        for group_id, group in self.site.coordinator.groups.items():
            if group.state is GroupState.STABLE:
                self.same(group, replayed.groups[group_id])
            elif group.state is GroupState.EMPTY and group.is_stored:
                assert replayed.groups[group_id].generation_id == group.generation_id
                assert not replayed.groups[group_id].members

    def same(self, group: Group, replayed: Group) -> None:
        assert (replayed.generation_id, replayed.protocol_name) == (group.generation_id, group.protocol_name)
        assert replayed.leader_id == group.leader_id
        assert list(replayed.members) == list(group.members)
        for member_id, member in group.members.items():
            told = replayed.members[member_id]
            assert (told.instance_id, told.assignment) == (member.instance_id, member.assignment)

    def teardown(self) -> None:
        for _ in range(6):
            self.site.sync_disk()
            self.site.wait(LONG_MS)
        self.site.sync_disk()
        unanswered = self.site.asked - self.site.answers.keys() - self.forgotten
        assert not unanswered
        assert self.site.coordinator.next_deadline_ms() is None


Groups.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
test_groups = Groups.TestCase
