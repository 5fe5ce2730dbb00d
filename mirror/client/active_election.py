"""Elects the one mirror of a site that writes, by the group at the source, whose members are the site's mirrors.

The group is the one that holds the positions, with a protocol of its own. Its leader assigns the active role to the
member that already writes, else to itself. Each member's metadata says whether it writes.

| it finds | then |
|---|---|
| a group without members | it writes at once, and joins meanwhile: Kafka lets a new group wait for 3 s |
| itself, of a previous process (group.instance.id is the host's name, KIP-345) | its role stays: a kill costs nothing |
| another that writes | it stands by, and writes once the other leaves, or is silent for 9 s |
| another with its own group.instance.id | the older one of both comes back without one, and stands by |
| no rights on the group | it writes, and the mirror that came last fences any other of the site |

Two that write at once do no harm, as the target's fence lets only one of them write (producer_sessions.py): the group
saves them the take-overs. Does not contain: what a mirror does once it is active.
Source: Kafka's classic group protocol, KIP-345, KIP-814.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from drupelet.backoff import Backoff
from drupelet.observe.log_tree import Log
from edge_broker.errors import ErrorCode, error_name
from edge_broker.protocol.api import RequestedApi
from edge_broker.protocol.message import Message
from edge_broker.protocol.messages.describe_groups import DescribeGroupsRequest
from edge_broker.protocol.messages.heartbeat import HeartbeatRequest
from edge_broker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from edge_broker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from edge_broker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kafka_wire.apis import DESCRIBE_GROUPS, HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from kafka_wire.cluster import Cluster
from kafka_wire.connection.errors import WireError

R = TypeVar("R", bound=Message)

_log = Log("mirror")

SESSION_S = 9.0
HEARTBEAT_S = 3.0
CONNECTION = 9  # its own connection, as a response to JoinGroup may wait for other members
PROTOCOL = "edge-mirror"
WRITES, STANDS_BY = b"writes", b"stands by"

_ANEW = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}
_ELSEWHERE = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
_NO_RIGHTS = {ErrorCode.GROUP_AUTHORIZATION_FAILED}


class Member(NamedTuple):
    """The member that commits positions; generation -1 outside of the group."""

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


class _RequestRefused(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(error_name(code))
        self.code = code


class Standby:
    """One mirror's membership in the group; `writes` is None until known. `changed` is called when `writes` changes."""

    def __init__(
        self,
        cluster: Callable[[], Cluster],
        group_id: str,
        instance: str,
        timeout_s: float,
        changed: Callable[[], None],
    ) -> None:
        """`cluster` returns the source's present connections; `instance` is this mirror's group.instance.id."""
        self.writes: bool | None = None
        self.member = Member()
        self.trouble = ""
        self._known = asyncio.Event()
        self._cluster, self._group_id, self._timeout_s, self._changed = cluster, group_id, timeout_s, changed
        self._instance: str | None = re.sub(r"[^a-zA-Z0-9._-]", "_", instance)[:249]
        self._node: int | None = None
        self._others_until = 0.0
        self._backoff = Backoff(0.1, HEARTBEAT_S)

    async def run(self) -> None:
        """Stay in the group until it is cancelled."""
        while True:
            try:
                await self._take_part()
            except _RequestRefused as error:
                self._request_refused(error)
            except (WireError, TimeoutError) as error:
                self.trouble = str(error)
            self._node = None
            await asyncio.sleep(self._backoff.next_s())

    async def until_writes(self) -> None:
        """Wait until this mirror is the one that writes."""
        while not self.writes:
            self._known.clear()
            await self._known.wait()

    @property
    def others_s(self) -> float:
        """For so long, in seconds, a mirror that was active may not know yet that it is not any more."""
        return max(0.0, self._others_until - asyncio.get_running_loop().time())

    async def leave(self) -> None:
        """Leave the group, so that another mirror becomes active at once; raises WireError."""
        if self.member.generation >= 0:
            me = MemberIdentity(member_id=self.member.member_id, group_instance_id=self._instance)
            await self._ask(LEAVE_GROUP, LeaveGroupRequest(group_id=self._group_id, members=[me]))
            self.member = Member()

    def _request_refused(self, error: _RequestRefused) -> None:
        self.member = Member() if error.code not in _ELSEWHERE else self.member
        if error.code in _NO_RIGHTS:
            if self.writes is None:
                _log.warning(
                    "standby_unavailable", reason=error, result="a second mirror of this site is not recognised"
                )
            self._set_writes(writes=True)
        elif error.code == ErrorCode.FENCED_INSTANCE_ID:
            _log.warning("second_mirror_found", instance=self._instance, result="this mirror stands by")
            self._instance = None
            self._set_writes(writes=False)
        elif error.code not in _ANEW:
            self.trouble = str(error)

    def _set_writes(self, *, writes: bool) -> None:
        if writes != self.writes:
            if self.writes is not None or not writes:
                _log.info("active_role_assigned" if writes else "standby_role_assigned", group=self._group_id)
            self.writes = writes
            self._changed()
        self._known.set()

    async def _take_part(self) -> None:
        if self.writes is None and await self._has_members():
            self._others_until = asyncio.get_running_loop().time() + HEARTBEAT_S + 1
        elif self.writes is None:
            self._set_writes(writes=True)
        await self._join()
        self._backoff.reset()
        self.trouble = ""
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            beat = HeartbeatRequest(
                group_id=self._group_id,
                generation_id=self.member.generation,
                member_id=self.member.member_id,
                group_instance_id=self._instance,
            )
            code = (await self._ask(HEARTBEAT, beat)).error_code
            if code == ErrorCode.REBALANCE_IN_PROGRESS:
                await self._join()
            elif code:
                raise _RequestRefused(code)

    async def _has_members(self) -> bool:
        (told,) = (await self._ask(DESCRIBE_GROUPS, DescribeGroupsRequest(groups=[self._group_id]))).groups
        if told.error_code:
            raise _RequestRefused(told.error_code)
        return bool(told.members)

    async def _join(self) -> None:
        """Join, or rejoin, and take the role that the leader assigns."""
        joined = await self._request_join()
        self.member = Member(joined.generation_id, joined.member_id, self._instance)
        given = []
        if joined.leader == joined.member_id and not joined.skip_assignment:
            first = next((one.member_id for one in joined.members if one.metadata == WRITES), joined.member_id)
            given = [
                SyncGroupRequestAssignment(
                    member_id=one.member_id, assignment=WRITES if one.member_id == first else STANDS_BY
                )
                for one in joined.members
            ]
        answer = await self._ask(
            SYNC_GROUP,
            SyncGroupRequest(
                group_id=self._group_id,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                group_instance_id=self._instance,
                protocol_type=PROTOCOL,
                protocol_name=PROTOCOL,
                assignments=given,
            ),
        )
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            await self._join()
            return
        if answer.error_code:
            raise _RequestRefused(answer.error_code)
        self._set_writes(writes=answer.assignment == WRITES)

    async def _request_join(self) -> JoinGroupResponse:
        member_id = self.member.member_id
        while True:
            request = JoinGroupRequest(
                group_id=self._group_id,
                session_timeout_ms=int(SESSION_S * 1000),
                rebalance_timeout_ms=int(SESSION_S * 1000),
                member_id=member_id,
                group_instance_id=self._instance,
                protocol_type=PROTOCOL,
                protocols=[JoinGroupRequestProtocol(name=PROTOCOL, metadata=WRITES if self.writes else STANDS_BY)],
            )
            joined = await self._ask(JOIN_GROUP, request)
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                member_id = joined.member_id
            elif joined.error_code:
                raise _RequestRefused(joined.error_code)
            else:
                return joined

    async def _ask(self, asked: RequestedApi[R], request: Message) -> R:
        cluster = self._cluster()
        if self._node is None:
            self._node = await cluster.coordinator_node(self._group_id)
        connection = await cluster.connection(self._node, CONNECTION)
        return await connection.ask(asked, request, timeout_s=self._timeout_s + SESSION_S)
