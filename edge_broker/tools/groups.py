"""`edge-broker groups`: every group, the one with most lag first; or one group's members and its place everywhere.

Contains: what is shown of a group. Does not contain: requests (wire_client).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from edge_broker.clock import SystemClock
from edge_broker.errors import error_name
from edge_broker.output import duration_text, write_json, write_table
from edge_broker.wire_client.cluster import EARLIEST, LATEST, Cluster, Partition, PartitionAnswer, Place, not_there
from edge_broker.wire_client.groups import GroupDescription, GroupListing, committed_offsets, describe, list_groups
from edge_broker.wire_client.reading import first_record


class GroupPosition(NamedTuple):
    """A group's place in one partition; what the broker does not tell is None, and `problem` says why."""

    topic: str
    partition: int
    committed: int
    end: int | None
    lag: int | None
    behind_ms: int | None
    problem: str


class _Ends(NamedTuple):
    """The partitions that groups have committed to."""

    partitions: Mapping[Place, Partition]
    starts: Mapping[Place, PartitionAnswer]
    ends: Mapping[Place, PartitionAnswer]


def show(cluster: Cluster, name: str | None, *, as_json: bool) -> int:
    """Print groups, or one group; 0. WireFailure."""
    listed = list_groups(cluster)
    if name is not None and name not in listed:
        raise not_there("group", name, listed, cluster.bootstrap.place)
    groups = list(listed.values()) if name is None else [listed[name]]
    described, offsets = describe(cluster, groups), committed_offsets(cluster, groups)
    ends = _ends(cluster, {place for places in offsets.values() for place in places})
    standings = {group.name: _standings(offsets.get(group.name, {}), ends) for group in groups}
    for group in groups:
        standings[group.name] = _with_lag_times(cluster, standings[group.name], ends, every=name is not None or as_json)
    groups.sort(key=lambda group: (-_lag(standings[group.name]), group.name))
    if as_json:
        for group in groups:
            write_json(_facts(group, described[group.name], standings[group.name]))
    elif name is None:
        _write_list(cluster, groups, described, standings)
    else:
        _write_one(described[name], standings[name])
    return 0


def _ends(cluster: Cluster, places: set[Place]) -> _Ends:
    names = sorted({name for name, _ in places})
    topics = [topic for topic in cluster.topics(names).values() if not topic.error_code] if names else []
    partitions = {(topic.name, one.number): one for topic in topics for one in topic.partitions}
    return _Ends(partitions, cluster.offsets(topics, EARLIEST), cluster.offsets(topics, LATEST))


def _standings(offsets: Mapping[Place, int], ends: _Ends) -> list[GroupPosition]:
    return [_standing(place, offset, ends) for place, offset in sorted(offsets.items())]


def _standing(place: Place, offset: int, ends: _Ends) -> GroupPosition:
    found, begin = ends.ends.get(place), ends.starts.get(place)
    if found is None or begin is None or found.error_code:
        gone = "no leader" if place in ends.partitions else "no such partition any more"
        return GroupPosition(*place, offset, None, None, None, error_name(found.error_code) if found else gone)
    start = begin.offset
    problem = f"offsets {offset} to {start - 1} are gone" if offset < start else ""
    if offset > found.offset:
        problem = "committed after the end"
    return GroupPosition(*place, offset, found.offset, max(0, found.offset - offset), None, problem)


def _with_lag_times(
    cluster: Cluster, standings: list[GroupPosition], ends: _Ends, *, every: bool
) -> list[GroupPosition]:
    """Add how old the first waiting record is: in every partition, or where most records wait."""
    most = max((standing.lag or 0 for standing in standings), default=0)
    return [
        standing._replace(behind_ms=_behind_ms(cluster, standing, ends))
        if standing.lag and (every or standing.lag == most)
        else standing
        for standing in standings
    ]


def _behind_ms(cluster: Cluster, standing: GroupPosition, ends: _Ends) -> int | None:
    place = (standing.topic, standing.partition)
    assert standing.end is not None, "it lags"
    begin = max(standing.committed, ends.starts[place].offset)
    if begin >= standing.end:
        return None
    record = first_record(cluster, *place, ends.partitions[place].leader, begin, standing.end)
    if record is None or record.timestamp < 0:
        return None
    return max(0, SystemClock().wall_ms() - record.timestamp)


def _lag(standings: list[GroupPosition]) -> int:
    return sum(standing.lag or 0 for standing in standings)


def _facts(group: GroupListing, described: GroupDescription, standings: list[GroupPosition]) -> dict[str, Any]:
    members = described.members
    return {
        "group": group.name,
        "state": described.state,
        "coordinator": group.node,
        "members": None if members is None else [member._asdict() for member in members],
        "lag": _lag(standings),
        "partitions": [standing._asdict() for standing in standings],
    }


def _write_list(
    cluster: Cluster,
    groups: list[GroupListing],
    described: Mapping[str, GroupDescription],
    standings: Mapping[str, list[GroupPosition]],
) -> None:
    rows = []
    for group in groups:
        members, places = described[group.name].members, standings[group.name]
        behind = max((one.behind_ms for one in places if one.behind_ms is not None), default=None)
        problems = [f"{one.topic}-{one.partition}: {one.problem}" for one in places if one.problem]
        rows.append(
            (
                group.name,
                described[group.name].state,
                None if members is None else len(members),
                len(places),
                _lag(places),
                None if behind is None else duration_text(behind),
                problems[0] if problems else "",
            )
        )
    columns = ("group", "state", "members", "partitions", "lag", "behind", "problem")
    last = len(columns) if any(row[-1] for row in rows) else -1
    write_table(columns[:last], [row[:last] for row in rows])
    print(f"{len(groups)} groups at {cluster.bootstrap.place}")


def _write_one(described: GroupDescription, standings: list[GroupPosition]) -> None:
    print(f"state: {described.state}")
    if described.members is None:
        print("members: not told by this API, as the group follows the protocol of KIP-848")
    else:
        print(f"members: {len(described.members) or 'none'}")
        write_table(
            ("client", "host", "member", "instance"),
            [(one.client_id, one.host, one.member_id, one.instance_id) for one in described.members],
        )
    print(f"lag: {_lag(standings):,} records" if standings else "nothing is committed")
    rows = [
        (
            *(one.topic, one.partition, one.committed, one.end, one.lag),
            None if one.behind_ms is None else duration_text(one.behind_ms),
            one.problem,
        )
        for one in standings
    ]
    columns = ("topic", "partition", "committed", "end", "lag", "behind", "problem")
    last = len(columns) if any(row[-1] for row in rows) else -1
    write_table(columns[:last], [row[:last] for row in rows])
