"""How groups look from outside: DescribeGroups and ListGroups.

Contains: what an administrator is shown. Does not contain: anything that changes a group.
"""

from collections.abc import Collection, Iterable

from edge_broker.coordinator.group import Group, GroupState
from edge_broker.coordinator.group_coordinator import GroupCoordinator
from edge_broker.coordinator.group_requests import DescribedGroup, DescribedMember, ListedGroup
from edge_broker.errors import ErrorCode


def describe_groups(
    coordinator: GroupCoordinator, group_ids: Iterable[str], *, knows_missing_group: bool
) -> list[DescribedGroup]:
    """DescribeGroups; `knows_missing_group` is true from version 6, which has GROUP_ID_NOT_FOUND."""
    return [_describe(coordinator, group_id, knows_missing_group) for group_id in group_ids]


def list_groups(
    coordinator: GroupCoordinator, states: Collection[str] = (), group_types: Collection[str] = ()
) -> list[ListedGroup]:
    """ListGroups; filters (states from version 4, types from version 5) ignore case, an empty one lets all pass."""
    wanted_states = {state.lower() for state in states}
    wanted_types = {group_type.lower() for group_type in group_types}
    return [
        ListedGroup(group.group_id, group.protocol_type or "", group.state.value, group.group_type)
        for group in coordinator.groups.values()
        if not wanted_states or group.state.value.lower() in wanted_states
        if not wanted_types or group.group_type in wanted_types
    ]


def _describe(coordinator: GroupCoordinator, group_id: str, knows_missing_group: bool) -> DescribedGroup:
    group = coordinator.groups.get(group_id)
    if group is None:
        error, message = ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found."
        if not knows_missing_group:
            return DescribedGroup(ErrorCode.NONE, None, group_id, GroupState.DEAD.value)
        return DescribedGroup(error, message, group_id, GroupState.DEAD.value)
    members = tuple(_members(group))
    protocol_name = group.protocol_name if group.state is GroupState.STABLE else None
    return DescribedGroup(
        ErrorCode.NONE,
        None,
        group_id,
        group.state.value,
        group.protocol_type or "",
        protocol_name or "",
        members,
    )


def _members(group: Group) -> Iterable[DescribedMember]:
    stable = group.state is GroupState.STABLE
    for member in group.members.values():
        metadata = member.metadata(group.protocol_name) if stable else b""
        yield DescribedMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            metadata,
            member.assignment or b"",
        )
