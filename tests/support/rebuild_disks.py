"""Disks of a cluster as the plan of a rebuild reads them."""

from __future__ import annotations

from edge_broker.cluster.rebuild.disks import Disk, DiskEpoch, DiskLog, DiskTopic
from edge_broker.storage.metadata.cluster_copy import ClusterCopy, CopiedTopic

T = CopiedTopic("t", "id-t", 20, ((1, 2, 3),), {"min.insync.replicas": "2"})


def log(end: int, *epochs: tuple[int, ...], start: int = 0, **fields: object) -> DiskLog:
    marks = tuple(DiskEpoch(*epoch) for epoch in epochs or [(3, 0)])
    return DiskLog("t", "id-t", 0, start, end, marks)._replace(**fields)  # type: ignore[arg-type]


def disk(number: int, *logs: DiskLog, copy: ClusterCopy | None = None, **fields: object) -> Disk:
    topics = (DiskTopic("t", "id-t", 1, {"min.insync.replicas": "2"}),) if logs else ()
    kept = ClusterCopy(100, (T,)) if copy is None else copy
    found = Disk(number, f"dir-{number}", "site", 90 + number, "stopped cleanly", 500, -1, kept, topics, logs)
    return found._replace(**fields)  # type: ignore[arg-type]
