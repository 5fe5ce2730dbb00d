"""Replicas on a full disk: which take no records, so that they leave the ISR.

| the disk | replicas |
|---|---|
| is full or nearly full | take nothing, but those of internal topics |
| had no byte left for a write of an internal topic | that replica takes nothing, until INTERNAL_ROOM_BYTES are free |
| has room again | take records again |
| was full a moment before the start (`mark_full_disk`) | lead on request only after a minute with room |

Does not contain: what is evicted (storage/retention), which broker leads then (cluster/partition/room.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from edge_broker.broker.state.disk_space import ALWAYS_WRITTEN
from edge_broker.cluster.partition.room import ROOM_KEPT_MS
from edge_broker.cluster.state.cluster_state import PartitionId
from edge_broker.network.log_lines import log_line
from edge_broker.storage.maintenance.full_disk_marker import FullDiskMarker
from edge_broker.storage.replica.replica_log import Replica

if TYPE_CHECKING:
    import asyncio

    from edge_broker.broker.broker import Broker
    from edge_broker.cluster.member import ClusterMember
    from edge_broker.storage.log.partition_log import PartitionLog

FREE_SPACE = "free space on this disk; another board leads this partition if one has room"
WRITE_FAILED = "full_disk_marker_write_failed"
INTERNAL_ROOM_BYTES = 1 << 19  # free, from which a replica of an internal topic takes records again


def mark_full_disk(broker: Broker, loop: asyncio.AbstractEventLoop) -> FullDiskMarker:
    """Have the looks at the disk keep a marker on it while it is full, and for a while after that."""

    def write_failed(error: OSError) -> None:
        action = "make space; it is tried again every second"
        loop.call_soon_threadsafe(partial(log_line, "warning", WRITE_FAILED, reason=error, action=action))

    marker = FullDiskMarker(broker.store.fs, broker.store.data_dir, ROOM_KEPT_MS, write_failed)
    broker.space.watch.full_disk_marker = marker
    return marker


class ReplicaSpace:
    """The replicas of one member on its disk; `full` while they take nothing."""

    def __init__(self, broker: Broker, member: ClusterMember, replicas: Mapping[PartitionLog, Replica]) -> None:
        self._broker, self._member, self._replicas = broker, member, replicas
        self.full = False

    def look_at_room(self) -> None:
        """Make replicas take nothing on a full disk, so that they leave the ISR and other brokers lead.

        Replicas of internal topics do so once one of their writes found no space.
        """
        full = self._broker.space.refusing or self._broker.space.tight
        if full or self.full:
            self._look_at_internal(full=full)
        if full == self.full:
            return
        self.full = full
        for log, replica in self._replicas.items():
            if log.topic not in ALWAYS_WRITTEN:
                replica.full = full
                self._member.tick_until_calm(PartitionId(log.topic, log.partition))
        if full:
            log_line("warning", "replicas_blocked", reason="the disk is full", followed=self.kept_out)
        else:
            log_line("info", "replicas_unblocked", reason="there is room")

    def _look_at_internal(self, *, full: bool) -> None:
        status = self._broker.space.status
        has_room = not full or (status is not None and status.free >= INTERNAL_ROOM_BYTES)
        for log, replica in self._replicas.items():
            if log.topic in ALWAYS_WRITTEN:
                log.writer.out_of_space = log.writer.out_of_space and not has_room
                if replica.full != log.writer.out_of_space:
                    self._block_internal(log, replica, blocked=log.writer.out_of_space)

    def _block_internal(self, log: PartitionLog, replica: Replica, *, blocked: bool) -> None:
        replica.full = blocked
        self._member.tick_until_calm(PartitionId(log.topic, log.partition))
        where = {"topic": log.topic, "partition": log.partition}
        if blocked:
            log_line("error", "internal_replica_blocked", **where, reason="no space is left", action=FREE_SPACE)
        else:
            log_line("info", "internal_replica_unblocked", **where, reason="there is room")

    @property
    def kept_out(self) -> int:
        """The number of followers that take nothing because the disk is full."""
        followed = [each for each in self._member.partitions.values() if each.leading is None]
        return sum(each.log.full for each in followed)
