"""A replica of a broker that is registered in a cluster."""

from __future__ import annotations

import uuid

from edge_broker.configuration.settings import LogSettings
from edge_broker.storage.log_store import LogStore
from edge_broker.testing.disk import SimulatedDisk
from tests.support.storage import READING

CLUSTER = "kUSr1o3mSvqPpNq5u4Cq5A"


def member(disk: SimulatedDisk) -> LogStore:
    return LogStore.open(disk, "/data", LogSettings(), READING, uuid.uuid4, "1", in_cluster=True)
