"""`edge-broker cluster disk`: what one data directory has of a cluster, for a rebuild without ZooKeeper's data.

The leader epochs of a log are those of its batches: the checkpoint of epochs, and after it the batches of the active
segment, as a start reads them. Bytes that a start would truncate do not count: those of no whole batch, and all after
an interrupted truncation.

Contains: reading and printing that. Does not contain: what a rebuild makes of it (cluster/rebuild/rebuild_plan.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from edge_broker.cluster.rebuild.disks import (
    NEVER_REGISTERED,
    NO_BROKER,
    NO_GENERATION,
    RUNNING,
    Disk,
    DiskEpoch,
    DiskLog,
    DiskTopic,
    encode,
)
from edge_broker.doctor.directory import DataDirectory, PartitionFiles, numbers, pieces, state_lines
from edge_broker.errors import StorageFault
from edge_broker.output import write_json, write_table
from edge_broker.security import state as security_state
from edge_broker.storage.files.atomic_files import checked_body, fault_of, read_whole
from edge_broker.storage.files.filesystem import FileSystem
from edge_broker.storage.log.leader_epochs import LeaderEpochs
from edge_broker.storage.metadata import security_store
from edge_broker.storage.metadata.broker_id import read_broker_id
from edge_broker.storage.metadata.broker_registrations import Registrations, read_registrations
from edge_broker.storage.metadata.cluster_copy import read_cluster_copy
from edge_broker.storage.metadata.topic_record import JOURNAL_TOPIC, id_text
from edge_broker.storage.recovery.truncation_file import KIND as TRUNCATION
from edge_broker.storage.segment.segment import Segment

State = TypeVar("State")

NO_REGISTRATIONS = "no file registrations: the disk belongs to no cluster, or counts as another disk"
NO_BROKER_ID = "no file broker-id: the board was not started since it keeps one"
NO_COPY = "no file cluster-copy: the broker was no member since it keeps one"
_COLUMNS = ("partition", "replicas", "log start", "end", "epoch", "epochs", "problem")


def describe(directory: DataDirectory, broker: int | None) -> Disk:
    """Return the description of a data directory, whose broker has the id `broker` (None: as its file says).

    A file that cannot be read is among its `problems`.
    """
    problems: list[str] = []
    kept = _state(read_registrations, directory, problems, NO_REGISTRATIONS) or Registrations("")
    copy = _state(read_cluster_copy, directory, problems, NO_COPY)
    topics, logs = _topics(directory, problems), []
    for partition in directory.partitions():
        if partition.topic.name != JOURNAL_TOPIC:
            logs.append(log_of(partition))
    running, stopped = directory.holder is not None, "stopped cleanly" if directory.clean else "stopped uncleanly"
    return Disk(
        broker if broker is not None else _broker_id(directory, problems),
        kept.directory,
        kept.cluster,
        kept.epochs[-1] if kept.epochs else NEVER_REGISTERED,
        RUNNING if running else stopped,
        _producer_ids(directory, problems),
        _security_generation(directory, problems),
        copy,
        tuple(topics),
        tuple(logs),
        tuple(problems),
    )


def show(directory: DataDirectory, broker: int | None, *, as_json: bool) -> int:
    """Print the description, as one line of JSON or as a table; 0. ConfigurationError."""
    disk = describe(directory, broker)
    if as_json:
        write_json(encode(disk))
        return 0
    copied = {each.topic_id: each.replicas for each in disk.copy.topics} if disk.copy is not None else {}
    name = disk.broker if disk.broker != NO_BROKER else "of unknown id"
    print(f"{directory.path}: broker {name}, {disk.state}, cluster {disk.cluster or '-'}, disk {disk.directory or '-'}")
    print(f"registration {disk.epoch}, producer ids up to {disk.producer_ids}, users {disk.security_generation}")
    for problem in disk.problems:
        print(f"problem: {problem}")
    if disk.copy is not None:
        print(f"copy of ZooKeeper's topics: {len(disk.copy.topics)}, as of {disk.copy.as_of}")
        for word, found in (("deleted", disk.copy.deletions), ("absent from ZooKeeper", disk.copy.absent)):
            for each in found:
                print(f"{word}: {each.name} ({each.topic_id}), epoch {each.epoch}")
    print()
    write_table(_COLUMNS, [_row(log, copied.get(log.topic_id, ())) for log in disk.logs], none="no partitions")
    return 0


def _row(log: DiskLog, replicas: tuple[tuple[int, ...], ...]) -> tuple[object, ...]:
    brokers = ",".join(map(str, replicas[log.partition])) if log.partition < len(replicas) else None
    epochs = " ".join(f"{epoch.epoch}@{epoch.offset}" for epoch in log.epochs)
    problem = log.problem or ("damaged" if log.damaged else "")
    return f"{log.topic}-{log.partition}", brokers, log.start_offset, log.end_offset, log.last_epoch, epochs, problem


def _state(
    read: Callable[[FileSystem, str], State], directory: DataDirectory, problems: list[str], missing: str
) -> State | None:
    """Return what a file of state has; None with a problem, `missing` if there is no file, where it cannot be read."""
    try:
        return read(directory.fs, directory.path)
    except FileNotFoundError:
        problems.append(missing)
    except (StorageFault, OSError, UnicodeDecodeError) as fault:
        problems.append(str(fault))
    return None


def _broker_id(directory: DataDirectory, problems: list[str]) -> int:
    kept = _state(read_broker_id, directory, problems, NO_BROKER_ID)
    return NO_BROKER if kept is None else kept


def _producer_ids(directory: DataDirectory, problems: list[str]) -> int:
    text = directory.one("producer-ids")
    if text.isdigit():
        return int(text)
    problems.append("the file producer-ids cannot be read")
    return 0


def _security_generation(directory: DataDirectory, problems: list[str]) -> int:
    """The generation of the disk's copy of the cluster's users and ACLs; NO_GENERATION: it has none."""
    path = f"{directory.path}/{security_store.NAME}"
    try:
        body = checked_body(path, read_whole(directory.fs, path), security_store.NAME, security_store.VERSION_OF_COPY)
        found = security_state.decode(body)
    except FileNotFoundError:
        return NO_GENERATION
    except (StorageFault, OSError, ValueError) as fault:
        problems.append(f"users and ACLs cannot be read: {fault}")
        return NO_GENERATION
    return found.generation if found.generation != security_state.OWN else NO_GENERATION


def _topics(directory: DataDirectory, problems: list[str]) -> list[DiskTopic]:
    found = []
    for topic in directory.topics():
        if isinstance(topic, StorageFault):
            problems.append(str(topic))
        elif topic.name != JOURNAL_TOPIC:
            found.append(DiskTopic(topic.name, id_text(topic.topic_id), topic.partitions, topic.config))
    return found


def log_of(partition: PartitionFiles) -> DiskLog:
    """Return what the files of a partition say; what cannot be read is its `problem`."""
    log = DiskLog(partition.topic.name, id_text(partition.topic.topic_id), partition.partition, 0, 0)
    try:
        if partition.topic_id() != partition.topic.topic_id:
            return log._replace(problem="its directory is missing, or is of another topic")
        segments = partition.segments()
        if not segments:
            return log._replace(problem="no segment")
        return _read(partition, segments, log)
    except StorageFault as fault:
        return log._replace(problem=str(fault))
    except OSError as error:
        return log._replace(problem=str(fault_of(error, partition.path, 0)))


def _read(partition: PartitionFiles, segments: list[Segment], log: DiskLog) -> DiskLog:
    removed, active = partition.removed_ranges(), segments[-1]
    start = max(segments[0].base_offset, removed[-1].end_offset if removed else 0)
    epochs, first_crcs = LeaderEpochs(partition.epochs() or ()), dict[int, int]()
    end = active.base_offset
    for piece in pieces(active, partition.corrupt_ranges(active.base_offset), verify=True):
        if piece.header is not None:
            if piece.header.leader_epoch not in first_crcs:
                first_crcs[piece.header.leader_epoch] = piece.header.crc
            epochs.note(piece.header.leader_epoch, piece.header.base_offset, first=end == start)
            end = piece.header.next_offset
        elif piece.corrupt_range is not None:
            end = max(end, piece.corrupt_range.end_offset)
    end = max(min(end, _truncated_at(partition, end)), start)
    epochs.cut(start, end)
    found = tuple(
        DiskEpoch(epoch, at, first_crcs.get(epoch) if at >= active.base_offset else None) for epoch, at in epochs.starts
    )
    damaged = any(each.owed for segment in segments for each in partition.corrupt_ranges(segment.base_offset))
    return log._replace(start_offset=start, end_offset=end, epochs=found, damaged=damaged)


def _truncated_at(partition: PartitionFiles, end: int) -> int:
    """Where a truncation that was interrupted cuts the log; its `end` where there is none. StorageFault."""
    lines = state_lines(partition.fs, f"{partition.path}/{TRUNCATION}", TRUNCATION)
    return end if not lines else numbers(lines)[0][0]
