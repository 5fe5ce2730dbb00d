"""`edge-broker topics`: every topic, the worst first; or one topic's partitions and the settings that were changed.

Contains: what is shown of a topic. Does not contain: requests (wire_client).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drupelet.quantities import quantity_text
from edge_broker.errors import ErrorCode, error_name
from edge_broker.output import bytes_text, duration_text, time_text, write_json, write_table
from edge_broker.wire_client.cluster import EARLIEST, LATEST, Cluster, Partition, PartitionAnswer, Place, Setting, Topic
from edge_broker.wire_client.reading import first_record

LIST_KEYS = ("retention.ms", "retention.bytes", "cleanup.policy")
UNLED = PartitionAnswer(-1, -1, ErrorCode.LEADER_NOT_AVAILABLE)
Offsets = Mapping[Place, PartitionAnswer]


def show(cluster: Cluster, name: str | None, *, as_json: bool) -> int:
    """Print topics, or one topic; 0. WireFailure."""
    if name is None:
        _show_all(cluster, as_json)
    else:
        _show_one(cluster, cluster.topic(name), as_json)
    return 0


def _show_all(cluster: Cluster, as_json: bool) -> None:
    topics = cluster.topics()
    starts, ends = cluster.offsets(topics.values(), EARLIEST), cluster.offsets(topics.values(), LATEST)
    settings = cluster.settings(list(topics), LIST_KEYS)
    sizes = cluster.sizes()
    facts = [_facts(topic, starts, ends, settings.get(topic.name, []), sizes) for topic in topics.values()]
    facts.sort(key=lambda one: (not one["problems"], -(one["bytes"] or 0), -(one["records"] or 0), one["topic"]))
    if as_json:
        for one in facts:
            write_json(one)
        return
    columns = ["topic", "partitions", "records", "bytes", "retention", "cleanup", "problem"]
    rows = [_row(one) for one in facts]
    for name, is_empty in (("problem", not any(one["problems"] for one in facts)), ("bytes", sizes is None)):
        if is_empty:
            at = columns.index(name)
            columns, rows = columns[:at] + columns[at + 1 :], [row[:at] + row[at + 1 :] for row in rows]
    write_table(columns, rows)
    print(f"{quantity_text(len(facts), 'topic')} at {cluster.bootstrap.place}")


def _facts(
    topic: Topic, starts: Offsets, ends: Offsets, settings: list[Setting], sizes: Mapping[Place, int] | None
) -> dict[str, Any]:
    values = {setting.key: setting.value for setting in settings}
    places = [(topic.name, partition.number) for partition in topic.partitions]
    counts = [ends[place].offset - starts[place].offset for place in places if _is_known(place, starts, ends)]
    problems = [
        f"partition {partition.number}: {problem}"
        for partition in topic.partitions
        if (problem := _problem(topic, partition, starts, ends))
    ]
    return {
        "topic": topic.name,
        "internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "records": sum(counts) if len(counts) == len(places) else None,
        "bytes": None if sizes is None else sum(sizes.get(place, 0) for place in places),
        "retention_ms": _number(values.get("retention.ms")),
        "retention_bytes": _number(values.get("retention.bytes")),
        "cleanup_policy": values.get("cleanup.policy"),
        "problems": ([error_name(topic.error_code)] if topic.error_code else []) + problems,
    }


def _is_known(place: Place, starts: Offsets, ends: Offsets) -> bool:
    return not (starts.get(place, UNLED).error_code or ends.get(place, UNLED).error_code)


def _problem(topic: Topic, partition: Partition, starts: Offsets, ends: Offsets) -> str:
    if partition.leader < 0:
        return "no leader"
    place = (topic.name, partition.number)
    for found in (starts.get(place, UNLED), ends.get(place, UNLED)):
        if found.error_code:
            return error_name(found.error_code)
    in_sync, replicas = len(partition.in_sync), len(partition.replicas)
    return f"{in_sync} of {replicas} in sync" if in_sync < replicas else ""


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.removeprefix("-").isdigit() else None


def _row(facts: Mapping[str, Any]) -> list[object]:
    problems = facts["problems"]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return [
        facts["topic"],
        facts["partitions"],
        facts["records"],
        facts["bytes"],
        _retention(facts["retention_ms"], facts["retention_bytes"], facts["cleanup_policy"]),
        facts["cleanup_policy"],
        f"{problems[0]}{more}" if problems else "",
    ]


def _retention(milliseconds: int | None, size: int | None, cleanup: str | None) -> str | None:
    if cleanup == "compact":  # nothing expires by age or size
        return "latest per key"
    if milliseconds is None:
        return None
    words = ["forever" if milliseconds < 0 else duration_text(milliseconds)]
    if size is not None and size >= 0:
        words.append(f"{bytes_text(size)} per partition")
    return ", ".join(words)


def _show_one(cluster: Cluster, topic: Topic, as_json: bool) -> None:
    starts, ends = cluster.offsets([topic], EARLIEST), cluster.offsets([topic], LATEST)
    sizes = cluster.sizes(topic)
    facts = [_partition(cluster, topic, partition, starts, ends, sizes) for partition in topic.partitions]
    settings = [one for one in cluster.settings([topic.name]).get(topic.name, []) if one.set_for]
    if as_json:
        for one in facts:
            write_json({"kind": "partition", "topic": topic.name, **one})
        for setting in settings:
            write_json({"kind": "setting", "topic": topic.name, **setting._asdict()})
        return
    names = [name for name in facts[0] if any(one[name] not in (None, "") for one in facts)] if facts else []
    names = [name for name in names if name != "last_record_ms"]
    write_table(
        ["last record" if name == "last_record" else name for name in names],
        [[one[name] for name in names] for one in facts],
    )
    print("\nsettings that were changed:" if settings else "\nevery setting has its default")
    write_table(("key", "value", "set for"), [tuple(setting) for setting in settings])


def _partition(
    cluster: Cluster,
    topic: Topic,
    partition: Partition,
    starts: Offsets,
    ends: Offsets,
    sizes: Mapping[Place, int] | None,
) -> dict[str, Any]:
    place = (topic.name, partition.number)
    known = _is_known(place, starts, ends)
    start, end = (starts[place].offset, ends[place].offset) if known else (None, None)
    last = None
    if start is not None and end is not None and start < end:
        last = first_record(cluster, *place, partition.leader, end - 1, end)
    return {
        "partition": partition.number,
        "start": start,
        "end": end,
        "records": None if start is None or end is None else end - start,
        "bytes": None if sizes is None else sizes.get(place),
        "leader": partition.leader if partition.leader >= 0 else None,
        "last_record_ms": last.timestamp if last is not None else None,
        "last_record": time_text(last.timestamp) if last is not None else None,
        "problem": _problem(topic, partition, starts, ends),
    }
