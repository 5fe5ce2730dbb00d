"""Measures the rates of partitions, and since when they have a lag, apart from the streams.

| figure | is |
|---|---|
| records_s, bytes_s | acknowledged per second, before compression; an average in which RATE_S ago counts a third |
| shrinks_s | by how many offsets per second the lag shrinks; below 0 it grows |
| behind_since | since when there has been a lag, by the loop's clock; None: there is none |
| bytes_per_offset | of the source's batches that were held last |

A partition costs something while it moves, and nothing after that. Does not contain: clients, decisions.
"""

from __future__ import annotations

from math import exp

from kafka_wire.partitions import TopicPartition
from mirror.partition.stream import PartitionStream

RATE_S = 5.0
STILL = 0.01  # per second, below which it stands


class Pace:
    """The rates of one partition; the fields are those of the table, and the counts since the last tick."""

    __slots__ = (
        "behind_since",
        "bytes",
        "bytes_per_offset",
        "bytes_s",
        "lag",
        "lag_before",
        "records",
        "records_s",
        "shrinks_s",
    )

    def __init__(self) -> None:
        self.records = self.bytes = self.lag = self.lag_before = 0
        self.records_s = self.bytes_s = self.shrinks_s = 0.0
        self.bytes_per_offset = 0.0
        self.behind_since: float | None = None

    def tick(self, seconds: float) -> bool:
        """Add the counts of so many seconds to the averages; return whether it moves."""
        share = 1 - exp(-seconds / RATE_S)
        self.records_s = _average(self.records_s, self.records / seconds, share)
        self.bytes_s = _average(self.bytes_s, self.bytes / seconds, share)
        self.shrinks_s = _average(self.shrinks_s, (self.lag_before - self.lag) / seconds, share)
        self.records = self.bytes = 0
        self.lag_before = self.lag
        return bool(self.records_s or self.bytes_s or self.shrinks_s)


def _average(before: float, now: float, share: float) -> float:
    after = before + (now - before) * share if before else now
    return after if abs(after) >= STILL else 0.0


class Progress:
    """The paces of all partitions."""

    def __init__(self) -> None:
        self._paces: dict[TopicPartition, Pace] = {}
        self._moving: dict[TopicPartition, PartitionStream] = {}
        self._ticked_at: float | None = None

    def of(self, partition: TopicPartition) -> Pace:
        """Return the pace of one partition."""
        return self._paces.get(partition) or self._paces.setdefault(partition, Pace())

    def records_acked(self, stream: PartitionStream, records: int, size: int) -> None:
        """Note so many records as safe at the target, and their bytes."""
        pace = self.of(stream.partition)
        pace.records += records
        pace.bytes += size
        self._moving[stream.partition] = stream

    def note_lag(self, stream: PartitionStream, lag: int, now: float) -> None:
        """Note its present lag, in offsets."""
        pace = self.of(stream.partition)
        pace.lag = lag
        if not lag:
            pace.behind_since = None
        elif pace.behind_since is None:
            pace.behind_since = now
        self._moving[stream.partition] = stream

    def forget(self, partition: TopicPartition) -> None:
        """Note that it is mirrored no more."""
        self._paces.pop(partition, None)
        self._moving.pop(partition, None)

    def tick(self, now: float) -> None:
        """Update the averages; about each second."""
        before, self._ticked_at = self._ticked_at, now
        if before is None or now <= before:
            return
        for partition, stream in list(self._moving.items()):
            pace = self.of(partition)
            offsets = stream.read_offset - stream.offsets.acked
            if stream.held_bytes and offsets > 0:
                pace.bytes_per_offset = stream.held_bytes / offsets
            if not pace.tick(now - before):
                del self._moving[partition]
