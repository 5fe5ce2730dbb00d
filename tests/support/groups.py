"""A group coordinator with its log and clients, for tests: time is a number, the disk is a list.

`Site` appends what the coordinator wants appended, syncs it when told to (or at once), and keeps every answer by token.
"""

from collections.abc import Callable
from typing import Any

from edge_broker.broker.state.group_registry import partition_for
from edge_broker.coordinator.group_coordinator import GroupCoordinator
from edge_broker.coordinator.group_requests import (
    Commit,
    CommitPartition,
    CommitResult,
    GroupEffects,
    GroupSettings,
    Join,
    JoinResult,
    Leave,
    Leaver,
    Protocol,
    Result,
    Sync,
)
from edge_broker.coordinator.offset_records import Record
from edge_broker.errors import ErrorCode

RANGE = Protocol("range", b"range-metadata")
STICKY = Protocol("sticky", b"sticky-metadata")
PROTOCOL_TYPE = "consumer"


def group_in(partition: int, partitions: int) -> str:
    """The name of a group that lies in a partition of `__consumer_offsets`."""
    return next(name for name in map("g{}".format, range(999)) if partition_for(name, partitions) == partition)


class Site:
    """One coordinator, its log, and whoever asked it something."""

    def __init__(self, settings: GroupSettings | None = None, *, sync_at_once: bool = True) -> None:
        self.settings = settings or GroupSettings()
        self.coordinator = GroupCoordinator(self.settings)
        self.sync_at_once = sync_at_once
        self.now_ms = 1_000
        self.log: list[Record] = []
        self.durable_records = 0
        self.unsynced: list[GroupEffects] = []
        self.answers: dict[int, Result] = {}
        self.asked: set[int] = set()
        self.on_answer: Callable[[int, Result], None] = lambda token, result: None
        self._tokens = 0

    def token(self) -> int:
        self._tokens += 1
        self.asked.add(self._tokens)
        return self._tokens

    def take(self, effects: GroupEffects) -> None:
        for token, result in effects.answers:
            assert token in self.asked, f"nobody asked under {token}"
            assert token not in self.answers, f"{token} is answered twice"
            self.answers[token] = result
            self.on_answer(token, result)
        if effects.append:
            self.log += effects.append
            self.unsynced.append(effects)
            if self.sync_at_once:
                self.sync_disk()

    def sync_disk(self) -> None:
        while self.unsynced:
            effects = self.unsynced.pop(0)
            self.durable_records += len(effects.append)
            self.take(effects.append_synced(self.now_ms))

    def fail_disk(self, error: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR) -> None:
        """What is not synced yet never will be."""
        failed, self.unsynced = self.unsynced, []
        del self.log[self.durable_records :]
        for effects in failed:
            self.take(effects.append_failed(error, self.now_ms))

    def wait(self, wait_ms: int) -> None:
        """Let time pass as the shell does: `expire` at each deadline on the way."""
        end_ms = self.now_ms + wait_ms
        while (due_ms := self.coordinator.next_deadline_ms()) is not None and due_ms <= end_ms:
            self.now_ms = max(due_ms, self.now_ms)
            self.take(self.coordinator.expire(self.now_ms))
        self.now_ms = end_ms

    def restart(self, unsynced_kept: int = 0) -> None:
        """The broker comes back with what was synced, and maybe more; whoever waited is gone."""
        del self.log[self.durable_records + unsynced_kept :]
        self.durable_records = len(self.log)
        self.coordinator = GroupCoordinator.load(self.settings, self.log, self.now_ms)
        self.unsynced.clear()
        self.asked = set(self.answers)

    def join(
        self,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        protocols: tuple[Protocol, ...] = (RANGE,),
        version: int = 9,
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 60_000,
        protocol_type: str = PROTOCOL_TYPE,
        group_id: str = "group",
        client_id: str = "client",
    ) -> int:
        token = self.token()
        join = Join(
            token=token,
            group_id=group_id,
            member_id=member_id,
            instance_id=instance_id,
            client_id=client_id,
            client_host="/10.0.0.7",
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            protocol_type=protocol_type,
            protocols=protocols,
            member_id_required=version >= 4,
            can_skip_assignment=version >= 9,
        )
        self.take(self.coordinator.join(join, unique_id=f"{token:04}", now_ms=self.now_ms))
        return token

    def join_twice(self, *, version: int = 9, group_id: str = "group", **options: Any) -> int:
        """Both steps of a new dynamic member."""
        asked = self.join(version=version, group_id=group_id, **options)
        member_id = self.joined(asked, ErrorCode.MEMBER_ID_REQUIRED).member_id
        return self.join(member_id, version=version, group_id=group_id, **options)

    def sync(
        self,
        member_id: str,
        generation_id: int,
        assignments: dict[str, bytes] | None = None,
        *,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> int:
        token = self.token()
        sync = Sync(
            token=token,
            group_id="group",
            generation_id=generation_id,
            member_id=member_id,
            instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=tuple((assignments or {}).items()),
        )
        self.take(self.coordinator.sync(sync, self.now_ms))
        return token

    def leave(self, *members: tuple[str, str | None]) -> int:
        token = self.token()
        leavers = tuple(Leaver(*member) for member in members)
        self.take(self.coordinator.leave(Leave(token=token, group_id="group", members=leavers), self.now_ms))
        return token

    def heartbeat(self, member_id: str, generation_id: int, instance_id: str | None = None) -> ErrorCode:
        return self.coordinator.heartbeat("group", generation_id, member_id, instance_id, self.now_ms)

    def commit(
        self,
        offset: int,
        *,
        member_id: str = "",
        generation_id: int = -1,
        instance_id: str | None = None,
        group_id: str = "group",
        metadata: str | None = None,
        partition: int = 0,
        version: int = 9,
    ) -> int:
        token = self.token()
        commit = Commit(
            token=token,
            group_id=group_id,
            generation_id=generation_id,
            member_id=member_id,
            instance_id=instance_id,
            partitions=(CommitPartition("readings", partition, offset, 3, metadata),),
            knows_missing_group=version >= 9,
        )
        self.take(self.coordinator.commit(commit, self.now_ms))
        return token

    def joined(self, token: int, error: ErrorCode = ErrorCode.NONE) -> JoinResult:
        result = self.answers[token]
        assert isinstance(result, JoinResult)
        assert result.error is error, result
        return result

    def error(self, token: int) -> ErrorCode:
        result = self.answers[token]
        assert not isinstance(result, CommitResult), result
        return result.error

    def stable_group(self, size: int = 2, *, version: int = 9) -> list[str]:
        """A Stable group of dynamic members; the first leads, each has its own id as assignment."""
        tokens = [self.join_twice(version=version)]
        while len(tokens) < size:
            newcomer = self.join_twice(version=version)
            tokens = [self.join(self.joined(token).member_id, version=version) for token in tokens]
            tokens.append(newcomer)
        results = [self.joined(token) for token in tokens]
        self.settle([result.member_id for result in results], results[0].generation_id)
        return [result.member_id for result in results]

    def stable_static_group(self, *instance_ids: str, version: int = 9) -> dict[str, str]:
        """A Stable group of static members, member id by instance id; the first leads."""
        tokens: dict[str, int] = {}
        for instance_id in instance_ids:
            newcomer = self.join(instance_id=instance_id, version=version)
            tokens = {
                known: self.join(self.joined(token).member_id, instance_id=known, version=version)
                for known, token in tokens.items()
            }
            tokens[instance_id] = newcomer
        results = {instance_id: self.joined(token) for instance_id, token in tokens.items()}
        member_ids = {instance_id: result.member_id for instance_id, result in results.items()}
        self.settle(list(member_ids.values()), next(iter(results.values())).generation_id)
        return member_ids

    def settle(self, member_ids: list[str], generation_id: int) -> None:
        """Everyone syncs, the leader assigns to each member its own id."""
        assignments = {member_id: member_id.encode() for member_id in member_ids}
        tokens = [self.sync(member_id, generation_id, assignments) for member_id in member_ids]
        assert {self.error(token) for token in tokens} == {ErrorCode.NONE}
