"""MirrorMaker 2 as a process, from an Apache Kafka, which it calls central, to an edge broker.

No assertion may live here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.support import runtimes
from tests.support.processes import JVM_STOP_STATUSES, ApacheKafka, EdgeBroker, Process

# One replica, as there is one broker on each side, and shorter intervals; everything else is as it comes.
ONE_REPLICA = (
    "replication",
    "checkpoints.topic.replication",
    "heartbeats.topic.replication",
    "offset-syncs.topic.replication",
    "offset.storage.replication",
    "status.storage.replication",
    "config.storage.replication",
)
OFTEN = ("refresh.topics", "sync.topic.configs", "emit.checkpoints", "sync.group.offsets")


IDENTITY = ("replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy",)


def mirrormaker(directory: Path, kafka: ApacheKafka, edge: EdgeBroker, more: Sequence[str] = ()) -> Process:
    """MirrorMaker 2 from one to the other; `more` are further lines of its configuration."""
    properties = directory / "mirrormaker.properties"
    lines = [
        "clusters = central, site",
        f"central.bootstrap.servers = {kafka.bootstrap}",
        f"site.bootstrap.servers = {edge.bootstrap}",
        "central->site.enabled = true",
        "central->site.sync.group.offsets.enabled = true",
        *(f"{name}.factor = 1" for name in ONE_REPLICA),
        *(f"{name}.interval.seconds = 2" for name in OFTEN),
        *more,
    ]
    properties.write_text("\n".join(lines))
    classpath = f"{runtimes.kafka_jars()}/*:{runtimes.mirrormaker_jars()}/*"
    command: list[str | Path] = [
        runtimes.java(),
        "-Xmx512m",
        "-cp",
        classpath,
        "org.apache.kafka.connect.mirror.MirrorMaker",
        properties,
    ]
    return Process("mirrormaker", command, directory, stop_statuses=JVM_STOP_STATUSES)
