"""What one board's disk has of a cluster: the description that a rebuild goes by, and its JSON.

`edge-broker cluster disk` describes a data directory; the file is carried to where `edge-broker cluster rebuild` runs.
It holds no secret: of users and ACLs it has the generation alone.

Contains: those values and their JSON, version 1. Does not contain: reading a data directory (doctor/disk.py), what
follows from it (rebuild_plan.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from edge_broker.storage.cluster_copy import ClusterCopy, CopiedDeletion, CopiedTopic

VERSION = 1
KIND = "cluster-disk"
NEVER_REGISTERED = -1
NO_GENERATION = -1
NO_BROKER = -1
RUNNING = "running"


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
        if (kind, version) != (KIND, VERSION):
            raise DiskFault(f"is of kind {kind} and version {version}, and this release knows {KIND} {VERSION}")
        fields["copy"] = None if fields["copy"] is None else _decode_copy(fields["copy"])
        fields["topics"] = tuple(DiskTopic(**each) for each in fields["topics"])
        fields["logs"] = tuple(_decode_log(each) for each in fields["logs"])
        return Disk(**fields | {"problems": tuple(fields["problems"])})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DiskFault(f"is no output of `edge-broker cluster disk --json` ({error!r})") from None


def _decode_copy(fields: dict[str, Any]) -> ClusterCopy:
    topics, absent = (
        tuple(CopiedTopic(**each | {"replicas": tuple(map(tuple, each["replicas"]))}) for each in fields[word])
        for word in ("topics", "absent")
    )
    deletions = tuple(CopiedDeletion(**each) for each in fields["deletions"])
    return ClusterCopy(int(fields["as_of"]), topics, absent, deletions)


def _decode_log(fields: dict[str, Any]) -> DiskLog:
    return DiskLog(**fields | {"epochs": tuple(DiskEpoch(*each) for each in fields["epochs"])})
