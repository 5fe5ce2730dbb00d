"""Parts of a mirror for the tests of mirror/replication: a stream, and recorders of what is reported and written.

Does not contain: assertions.
"""

from __future__ import annotations

from types import SimpleNamespace

from kafka_wire.cluster import Leader
from kafka_wire.partitions import TopicPartition
from mirror.config import Config
from mirror.partition.send_state import SENDING
from mirror.partition.stream import PartitionStream

TP = TopicPartition("readings", 0)
CONFIG = Config(
    source="s:1", target="t:2", topics="readings|logs", site="lab", backoff_max_ms=2, commit_interval_ms=1,
    refresh_interval_ms=60_000, compression="none",
)  # fmt: skip


def new_stream(partition=TP, *, policy="delete", read_offset=0):
    """A stream that may be read and sent, at an offset of the source."""
    stream = PartitionStream(partition, f"lab.{partition.topic}", {"cleanup.policy": policy})
    stream.leader, stream.leader_epoch, stream.send_state = Leader(1, 0), 0, SENDING
    stream.read_from(read_offset)
    return stream


class Problems(dict):
    """The problems there are, by name."""

    def report(self, name, text):
        if text:
            self[name] = text
        else:
            self.pop(name, None)


class Losses:
    """A loss writer; `meanwhile` runs while a loss is written."""

    def __init__(self, meanwhile=lambda stream: None):
        self.written, self.letters, self.meanwhile = [], [], meanwhile

    async def write_loss(self, stream, cause, first, end, size=None, occasion=""):
        self.written.append((cause, first, end))
        self.meanwhile(stream)

    async def write_letter(self, batch):
        self.letters.append(batch)


class Period:
    """An active period that is its own sender: it notes which streams it has to start, consider and drop."""

    is_active, silent_s = True, 0.0

    def __init__(self):
        self.started, self.considered, self.dropped, self.ticks = [], [], [], 0
        self.sender = self
        self.sessions = SimpleNamespace(is_unfenced=False)
        self.refusals = SimpleNamespace(
            held=SimpleNamespace(excess_bytes=0, bytes=0, readable=lambda ready, busy: ready)
        )

    def start(self, stream):
        self.started.append(stream)

    def consider(self, stream):
        self.considered.append(stream)

    def drop(self, stream):
        self.dropped.append(stream)

    def tick(self):
        self.ticks += 1
