"""Groups as a client sees them: who coordinates which, their members, and what they have committed.

A group that a broker lists is coordinated by that broker, so no query for it is needed: FindCoordinator would make
Apache Kafka create its topic of offsets. Does not contain: text for people. Every function raises WireFailure.
"""

from __future__ import annotations

from typing import NamedTuple

from edge_broker.errors import ErrorCode, error_name
from edge_broker.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from edge_broker.protocol.messages.list_groups import ListGroupsRequest
from edge_broker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from edge_broker.wire_client import apis
from edge_broker.wire_client.cluster import Cluster, Place, chunks
from edge_broker.wire_client.connection import WireFailure

GROUPS_AT_ONCE = 50


class GroupListing(NamedTuple):
    """A group, the broker that coordinates it, and its state and type where the broker lists them."""

    name: str
    node: int
    state: str
    kind: str


class Member(NamedTuple):
    """A member by its ids and where it is connected from."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None


class GroupDescription(NamedTuple):
    """A group's state and members; `members` is None where this API does not tell, as of the groups of KIP-848."""

    state: str
    members: list[Member] | None


def list_groups(cluster: Cluster) -> dict[str, GroupListing]:
    """Every group of every broker, by name."""
    found: dict[str, GroupListing] = {}
    for node in cluster.nodes():
        answer = cluster.at(node).ask(apis.LIST_GROUPS, ListGroupsRequest())
        if answer.error_code:
            raise WireFailure(f"broker {node} does not list its groups: {error_name(answer.error_code)}")
        for one in answer.groups:
            found[one.group_id] = GroupListing(one.group_id, node, one.group_state, one.group_type)
    return dict(sorted(found.items()))


def describe(cluster: Cluster, groups: list[GroupListing]) -> dict[str, GroupDescription]:
    """State and members of groups that were listed."""
    listed = {group.name: group for group in groups}
    found = {
        group.name: GroupDescription(group.state or "unknown", None) for group in groups
    }  # what is not answered stays so
    for node, some in _at_once(groups):
        request = DescribeGroupsRequest(groups=[group.name for group in some])
        for one in cluster.at(node).ask(apis.DESCRIBE_GROUPS, request).groups:
            if one.group_id in listed:
                found[one.group_id] = _description(listed[one.group_id], one)
    return found


def _description(group: GroupListing, told: DescribedGroup) -> GroupDescription:
    if told.error_code or (told.group_state == "Dead" and group.state not in ("", "Dead")):
        return GroupDescription(group.state or error_name(told.error_code), None)
    members = [Member(one.member_id, one.client_id, one.client_host, one.group_instance_id) for one in told.members]
    return GroupDescription(told.group_state, members)


def committed_offsets(cluster: Cluster, groups: list[GroupListing]) -> dict[str, dict[Place, int]]:
    """The committed offsets of each group; none of a group that has no such thing, as share groups."""
    found: dict[str, dict[Place, int]] = {}
    for node, some in _at_once(groups):
        wanted = [OffsetFetchRequestGroup(group_id=group.name, topics=None) for group in some]
        for one in cluster.at(node).ask(apis.OFFSET_FETCH, OffsetFetchRequest(groups=wanted)).groups:
            found[one.group_id] = {
                (topic.name, partition.partition_index): partition.committed_offset
                for topic in one.topics
                for partition in topic.partitions
                if partition.committed_offset >= 0 and partition.error_code == ErrorCode.NONE
            }
    return found


def _at_once(groups: list[GroupListing]) -> list[tuple[int, list[GroupListing]]]:
    pieces = []
    for node in sorted({group.node for group in groups}):
        here = [group for group in groups if group.node == node]
        pieces += [(node, list(some)) for some in chunks(here, GROUPS_AT_ONCE)]
    return pieces
