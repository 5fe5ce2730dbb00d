"""Data directories of a cluster's broker, for the tests of the doctor."""

from __future__ import annotations

import uuid
from pathlib import Path

from edge_broker.clock import SystemClock
from edge_broker.configuration.settings import LogSettings
from edge_broker.storage.files.filesystem import Disk as FileSystemDisk
from edge_broker.storage.log_store import LogStore
from edge_broker.storage.replica.replica_log import Replica
from tests.support.storage import append, batch, sync

EPOCH = 17


def lead(store: LogStore, epoch: int, *values: bytes, topic: str = "t") -> Replica:
    """Records of an epoch that this board leads, a batch each, synced."""
    replica = Replica(store.topics[topic].partitions[0])
    replica.begin_epoch(epoch)
    replica.keep_epoch()
    for value in values:
        append(replica.log, batch(value))
    sync(replica.log)
    return replica


def opened(path: Path) -> LogStore:
    reading = SystemClock().reading()
    return LogStore.open(FileSystemDisk(), str(path), LogSettings(), reading, uuid.uuid4, "2", in_cluster=True)
