"""Describe what one broker's disk has of a cluster, for a rebuild, and as JSON.

`edge-broker cluster disk` describes a data directory; the file is carried to where `edge-broker cluster rebuild` runs.
It holds no secret: of users and ACLs it has the generation alone.

Contains: those values and their JSON, version 1. Does not contain: reading a data directory (doctor/disk.py), what
follows from it (rebuild_plan.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from edge_broker.storage.metadata.cluster_copy import ClusterCopy, CopiedDeletion, CopiedTopic
from edge_broker.storage.metadata.topic_record import is_topic_name

VERSION = 1
KIND = "cluster-disk"
NEVER_REGISTERED = -1
NO_GENERATION = -1
NO_BROKER = -1
RUNNING = "running"
CRC_MAX = 0xFFFFFFFF
INT_MAX = 0x7FFFFFFF
LONG_MAX = 0x7FFFFFFFFFFFFFFF
_NO_OUTPUT = "is no output of `edge-broker cluster disk --json`"
_AGAIN = "describe the disk again with `edge-broker cluster disk --json`"


class DiskFault(Exception):
    """A file that is no description of a disk."""


class DiskEpoch(NamedTuple):
    """A leader epoch and the offset at which it began; `crc` is that of its first batch, None where that is unread."""

    epoch: int
    offset: int
    crc: int | None = None


class DiskLog(NamedTuple):
    """A partition's log: records from `start_offset` up to `end_offset`, exclusive; `problem`: why it is unreadable.

    `epochs` are those of records, the oldest first. `damaged`: a range of it is lost here, other replicas may have it.
    """

    topic: str
    topic_id: str
    partition: int
    start_offset: int
    end_offset: int
    epochs: tuple[DiskEpoch, ...] = ()
    damaged: bool = False
    problem: str = ""

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last record; -1: there is no record."""
        return self.epochs[-1].epoch if self.epochs else -1

    @property
    def is_empty(self) -> bool:
        """Whether it has no record and had none."""
        return not self.end_offset and not self.problem


class DiskTopic(NamedTuple):
    """A topic as its file on this disk has it."""

    name: str
    topic_id: str
    partitions: int
    config: Mapping[str, str]


class Disk(NamedTuple):
    """One data directory; `epoch` is its newest registration, `producer_ids` the first id above all that it gave."""

    broker: int
    directory: str
    cluster: str
    epoch: int
    state: str
    producer_ids: int
    security_generation: int
    copy: ClusterCopy | None
    topics: tuple[DiskTopic, ...]
    logs: tuple[DiskLog, ...]
    problems: tuple[str, ...] = ()

    def log(self, topic_id: str, partition: int) -> DiskLog | None:
        """Return the log of a partition; None: the disk has none."""
        return next((log for log in self.logs if (log.topic_id, log.partition) == (topic_id, partition)), None)


def encode(disk: Disk) -> dict[str, Any]:
    """Return the description as a value for JSON."""
    fields = disk._asdict() | {"kind": KIND, "version": VERSION}
    fields["copy"] = None if disk.copy is None else _encode_copy(disk.copy)
    fields["topics"] = [each._asdict() | {"config": dict(each.config)} for each in disk.topics]
    fields["logs"] = [each._asdict() | {"epochs": [list(epoch) for epoch in each.epochs]} for each in disk.logs]
    return fields


def _encode_copy(copy: ClusterCopy) -> dict[str, Any]:
    topics = {
        word: [each._asdict() | {"config": dict(each.config)} for each in found]
        for word, found in (("topics", copy.topics), ("absent", copy.absent))
    }
    return copy._asdict() | topics | {"deletions": [each._asdict() for each in copy.deletions]}


def decode(text: str) -> Disk:
    """Return the disk that a text describes; DiskFault."""
    try:
        fields = json.loads(text)
        kind, version = fields.pop("kind"), fields.pop("version")
        if (kind, version) != (KIND, VERSION) or type(version) is not int:
            raise DiskFault(f"is of kind {kind} and version {version}, and this release knows {KIND} {VERSION}")
        fields["copy"] = None if fields["copy"] is None else _decode_copy(fields["copy"])
        fields["topics"] = tuple(DiskTopic(**each) for each in fields["topics"])
        fields["logs"] = tuple(_decode_log(each) for each in fields["logs"])
        disk = Disk(**fields | {"problems": tuple(fields["problems"])})
        _check(disk)
        return disk
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DiskFault(f"{_NO_OUTPUT} ({error!r})") from None


def _check(disk: Disk) -> None:
    """Refuse a value that no disk has: what is planned by it would be written into znodes.

    ValueError, TypeError; DiskFault names a number that is none, or the partition whose offsets or epochs contradict
    each other.
    """
    _check_texts(disk.directory, disk.cluster, disk.state, *disk.problems)
    _check_number("broker", disk.broker, -1, INT_MAX)
    for name in ("epoch", "security_generation", "producer_ids"):
        _check_number(name, getattr(disk, name), -1, LONG_MAX)
    for topic in disk.topics:
        _check_topic(topic.name, topic.topic_id, topic.config)
        _check_number(f"partitions of topic {topic.name}", topic.partitions, 0, INT_MAX)
    if disk.copy is not None:
        _check_copy(disk.copy)
    for log in disk.logs:
        _check_log(log)


def _check_copy(copy: ClusterCopy) -> None:
    _check_number("as_of of the copy", copy.as_of, -1, LONG_MAX)
    for copied in (*copy.topics, *copy.absent):
        _check_topic(copied.name, copied.topic_id, copied.config)
        _check_number(f"epoch of topic {copied.name}", copied.epoch, -1, LONG_MAX)
        for broker in (broker for each in copied.replicas for broker in each):
            _check_number(f"replica of topic {copied.name}", broker, 0, INT_MAX)
        if not copied.replicas or any(not each or len(set(each)) < len(each) for each in copied.replicas):
            raise ValueError(f"topic {copied.name} has no partition, one without a replica, or a broker twice")
    for deletion in copy.deletions:
        _check_topic(deletion.name, deletion.topic_id, {})
        _check_number(f"epoch of the deletion of {deletion.name}", deletion.epoch, -1, LONG_MAX)


def _check_log(log: DiskLog) -> None:
    _check_topic(log.topic, log.topic_id, {})
    _check_texts(log.problem)
    _check_number(f"partition of topic {log.topic}", log.partition, 0, INT_MAX)
    name = f"{log.topic}-{log.partition}"
    _check_number(f"start_offset of {name}", log.start_offset, 0, LONG_MAX)
    _check_number(f"end_offset of {name}", log.end_offset, 0, LONG_MAX)
    for each in log.epochs:
        _check_number(f"epoch of {name}", each.epoch, -1, INT_MAX)
        _check_number(f"offset of an epoch of {name}", each.offset, 0, LONG_MAX)
        if each.crc is not None:
            _check_number(f"CRC of an epoch of {name}", each.crc, 0, CRC_MAX)
    if type(log.damaged) is not bool:
        raise DiskFault(f"{_NO_OUTPUT}: damaged of {name} is {json.dumps(log.damaged)[:40]}, not true or false")
    if log.start_offset > log.end_offset:
        raise DiskFault(
            f"says that the log of {name} starts at offset {log.start_offset}, after its end {log.end_offset}; {_AGAIN}"
        )
    for one, other in pairwise(log.epochs):
        if not (one.epoch < other.epoch and one.offset <= other.offset):
            raise DiskFault(
                f"has epochs of {name} out of order ({one.epoch} at offset {one.offset}, {other.epoch} at "
                f"{other.offset}); {_AGAIN}"
            )
    if log.epochs and log.epochs[-1].offset >= log.end_offset:
        raise DiskFault(
            f"says that epoch {log.last_epoch} of {name} begins at offset {log.epochs[-1].offset}, where the log "
            f"ended at {log.end_offset}; {_AGAIN}"
        )


def _check_topic(name: str, topic_id: str, config: Mapping[str, str]) -> None:
    _check_texts(name, topic_id, *config, *config.values())
    if not is_topic_name(name):
        raise ValueError(f"{name!r} is no name of a topic")


def _check_texts(*texts: str) -> None:
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"{text!r} is no text")


def _check_number(name: str, number: int, least: int, most: int) -> None:
    """Refuse what is no whole number within its bounds, also JSON's true and false, which Python counts as 1 and 0."""
    if type(number) is not int or not least <= number <= most:
        raise DiskFault(f"{_NO_OUTPUT}: {name} is {json.dumps(number)[:40]}, no whole number from {least} to {most}")


def _decode_copy(fields: dict[str, Any]) -> ClusterCopy:
    topics, absent = (
        tuple(CopiedTopic(**each | {"replicas": tuple(map(tuple, each["replicas"]))}) for each in fields[word])
        for word in ("topics", "absent")
    )
    deletions = tuple(CopiedDeletion(**each) for each in fields["deletions"])
    return ClusterCopy(fields["as_of"], topics, absent, deletions)


def _decode_log(fields: dict[str, Any]) -> DiskLog:
    return DiskLog(**fields | {"epochs": tuple(DiskEpoch(*each) for each in fields["epochs"])})
