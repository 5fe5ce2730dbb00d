"""`edge-broker log ls`: what is in a data directory.

Contains: the facts of store, partitions and segments, and their layout. Does not contain: judgement (check.py).
"""

from __future__ import annotations

from typing import Any

from edge_broker.doctor.directory import DataDirectory, PartitionFiles, Piece, facts_of, pieces
from edge_broker.errors import StorageFault
from edge_broker.output import time_text, write_json, write_table
from edge_broker.storage.files.atomic_files import fault_of
from edge_broker.storage.files.sync_cost import describe, read_card
from edge_broker.storage.segment.batch_scan import CorruptRange
from edge_broker.storage.segment.segment import Segment

_PARTITION = ("partition", "segments", "bytes", "log start", "synced", "end", "epoch", "corrupt", "removed", "remark")
_STOPS = {"clean": "a clean stop", "unclean": "no clean stop"}
_SEGMENT = (
    "partition",
    "segment",
    "bytes",
    "batches",
    "first offset",
    "end offset",
    "first time",
    "last time",
    "corrupt",
)


def ls(directory: DataDirectory, name: str | None, *, as_json: bool) -> int:
    """List the store and its partitions, with a NAME their segments too; 0. ConfigurationError."""
    partitions = list(directory.partitions(name))
    store = store_facts(directory)
    rows = [partition_facts(directory, partition) for partition in partitions]
    segments = [one for partition in partitions for one in segment_facts(partition)] if name or as_json else []
    if as_json:
        for kind, facts in (("store", [store]), ("partition", rows), ("segment", segments)):
            for fact in facts:
                write_json({"kind": kind, **fact})
        return 0
    _print_store(store)
    write_table(_PARTITION, [_partition_row(row) for row in rows])
    if segments:
        print()
        write_table(_SEGMENT, [_segment_row(row) for row in segments])
    return 0


def store_facts(directory: DataDirectory) -> dict[str, Any]:
    """Return the facts of the store's own files."""
    recovery = _last_recovery(directory)
    return {
        "data_dir": directory.path,
        "cluster_id": directory.one("store"),
        "leader_epoch": directory.one("leader-epoch"),
        "state": _state(directory),
        "holder": directory.holder,
        "card": _card(directory),
        "last_recovery": recovery,
        "topics": [_topic(topic) for topic in directory.topics()],
    }


def _state(directory: DataDirectory) -> str:
    if directory.holder is not None:
        return "running"
    return "stopped cleanly" if directory.clean else "stopped uncleanly"


def _card(directory: DataDirectory) -> list[str]:
    try:
        card = read_card(directory.fs, directory.path)
    except (StorageFault, OSError) as error:
        return [str(error)]
    return describe(card) if card is not None else []


def _last_recovery(directory: DataDirectory) -> list[str]:
    """When the last start was that had anything to say, and what it found and did, a sentence each."""
    try:
        lines = directory.state("last-recovery", "last-recovery") or []
        if not lines:
            return []
        epoch, wall_ms, stop, size = lines[0]
        head = f"{time_text(int(wall_ms))}, leader epoch {epoch}, after {_STOPS[stop]}, {int(size):,} bytes read"
        return [head, *(" ".join(line) for line in lines[1:])]
    except (StorageFault, ValueError, KeyError) as error:
        return [f"last-recovery cannot be understood: {error}"]


def _topic(topic: Any) -> dict[str, Any]:
    if isinstance(topic, StorageFault):
        return {"fault": str(topic)}
    return {
        "topic": topic.name,
        "topic_id": str(topic.topic_id),
        "partitions": topic.partitions,
        "config": topic.config,
    }


def partition_facts(directory: DataDirectory, partition: PartitionFiles) -> dict[str, Any]:
    """Return the facts of the files of one partition."""
    facts: dict[str, Any] = {
        "partition": partition.name,
        "segments": 0,
        "bytes": 0,
        "log_start_offset": None,
        "synced_offset": partition.stored.offset if partition.stored else None,
        "end_offset": None,
        "leader_epoch": None,
        "corrupt_ranges": 0,
        "removed": None,
        "remark": "",
    }
    try:
        _add_log(directory, partition, facts)
        removed = partition.removed_ranges()
        facts["removed"] = [line._asdict() for line in removed]
        if removed:
            facts["log_start_offset"] = max(facts["log_start_offset"] or 0, removed[-1].end_offset)
    except StorageFault as fault:
        facts["remark"] = str(fault)
    return facts


def _add_log(directory: DataDirectory, partition: PartitionFiles, facts: dict[str, Any]) -> None:
    segments = partition.segments()
    if not segments:
        facts["remark"] = "no segment"
        return
    facts["segments"], facts["bytes"] = len(segments), sum(segment.size for segment in segments)
    facts["log_start_offset"] = segments[0].base_offset
    epochs = partition.epochs() or []
    facts["leader_epoch"] = epochs[-1][0] if epochs else None
    facts["corrupt_ranges"] = sum(len(partition.corrupt_ranges(segment.base_offset)) for segment in segments)
    position, end_offset, epoch, rest = walk_tail(partition, segments[-1])
    facts["end_offset"] = end_offset
    if epoch >= 0:
        facts["leader_epoch"] = epoch
    if rest:
        why = (
            "being written" if directory.holder is not None else "no whole batch" if not directory.clean else "damaged"
        )
        facts["remark"] = f"{rest:,} bytes from byte {position} of the active segment on: {why}"


def walk_tail(partition: PartitionFiles, active: Segment) -> tuple[int, int, int, int]:
    """(position, offset, leader epoch) of the end of the last whole batch, and the bytes after it. StorageFault."""
    position, offset, epoch = 0, active.base_offset, -1
    stored = partition.stored
    if stored is not None and stored.segment_base == active.base_offset and stored.position <= active.size:
        position, offset = stored.position, stored.offset
    for piece in walk(active, partition.corrupt_ranges(active.base_offset), start=position, verify=True):
        if piece.header is not None:
            offset, epoch = piece.header.next_offset, piece.header.leader_epoch
        elif piece.corrupt_range is not None:
            offset = piece.corrupt_range.end_offset
        else:
            return piece.position, offset, epoch, active.size - piece.position
        position = piece.end_position
    return position, offset, epoch, 0


def walk(segment: Segment, corrupt_ranges: list[CorruptRange], *, start: int = 0, verify: bool) -> list[Piece]:
    """The pieces of a segment; none when its file vanished. StorageFault."""
    try:
        return list(pieces(segment, corrupt_ranges, start=start, verify=verify))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise fault_of(error, segment.path, 0) from error


def segment_facts(partition: PartitionFiles) -> list[dict[str, Any]]:
    """Return the contents of each segment of a partition, by its batches' headers."""
    facts = []
    segments = partition.segments()
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        row: dict[str, Any] = {"partition": partition.name, "segment": segment.name("log"), "bytes": segment.size}
        try:
            row |= _summarize(segment, partition.corrupt_ranges(segment.base_offset))
        except StorageFault as fault:
            row["remark"] = str(fault)
        if following is not None:
            row["end_offset"] = following.base_offset
        facts.append(row)
    return facts


def _summarize(segment: Segment, corrupt_ranges: list[CorruptRange]) -> dict[str, Any]:
    found = [piece.header for piece in walk(segment, corrupt_ranges, verify=False) if piece.header is not None]
    return {
        "batches": len(found),
        "first_offset": found[0].base_offset if found else None,
        "end_offset": found[-1].next_offset if found else segment.base_offset,
        "first_timestamp": min((header.base_timestamp for header in found), default=None),
        "last_timestamp": max((header.max_timestamp for header in found), default=None),
        "corrupt_ranges": [facts_of(corrupt_range) for corrupt_range in corrupt_ranges],
    }


def _print_store(store: dict[str, Any]) -> None:
    by = f" (process {store['holder']})" if store["holder"] is not None else ""
    print(
        f"{store['data_dir']}: cluster {store['cluster_id']}, leader epoch {store['leader_epoch']}, "
        f"{store['state']}{by}"
    )
    for title, key in (("card", "card"), ("last start", "last_recovery")):
        for line in store[key]:
            print(f"{title}: {line}")
    for topic in store["topics"]:
        if "fault" in topic:
            print(f"topic file: {topic['fault']}")
    print()


def _partition_row(row: dict[str, Any]) -> tuple[object, ...]:
    removed = sum(line["end_offset"] - line["first_offset"] for line in row["removed"] or [])
    keys = (
        "partition",
        "segments",
        "bytes",
        "log_start_offset",
        "synced_offset",
        "end_offset",
        "leader_epoch",
        "corrupt_ranges",
    )
    return (*(row[key] for key in keys), removed, row["remark"])


def _segment_row(row: dict[str, Any]) -> tuple[object, ...]:
    ranges = ", ".join(f"{one['first_offset']}..{one['end_offset'] - 1}" for one in row.get("corrupt_ranges", []))
    keys = ("partition", "segment", "bytes", "batches", "first_offset", "end_offset")
    times = (time_text(row.get("first_timestamp")), time_text(row.get("last_timestamp")))
    return (*(row.get(key) for key in keys), *times, row.get("remark") or ranges or "-")
