"""A topic of a data directory: its id, its logs and its configuration; the confirmed ends of its logs.

Contains: those values. Does not contain: the files that keep them (topic_record.py), who may see the topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_broker.storage.metadata.topic_record import TopicRecord
from edge_broker.storage.recovery.recovery_checkpoint import Position

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterable, Mapping

    from edge_broker.configuration.settings import LogSettings
    from edge_broker.storage.log.partition_log import PartitionLog
    from edge_broker.storage.recovery.recovery_checkpoint import PartitionKey


class Topic:
    """A topic: `config` holds the explicitly set keys only, `settings` all values that its logs use."""

    __slots__ = ("config", "name", "partitions", "settings", "topic_id")

    def __init__(
        self,
        name: str,
        topic_id: uuid.UUID,
        partitions: list[PartitionLog],
        config: dict[str, str],
        settings: LogSettings,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions
        self.config = config
        self.settings = settings

    def record(self) -> TopicRecord:
        """Return the content of the topic's file."""
        return TopicRecord(
            self.name, self.topic_id, len(self.partitions), self.config, compacted=self.settings.compacted
        )

    def __repr__(self) -> str:
        return f"Topic({self.name!r}, {self.topic_id}, {len(self.partitions)} partitions)"


def confirmed_ends(topics: Iterable[Topic], stored: Mapping[PartitionKey, Position]) -> dict[PartitionKey, Position]:
    """Return the confirmed end of each log, of an offline one the stored end.

    Reads each log's `synced` once, as the loop may replace it meanwhile.
    """
    ends: dict[PartitionKey, Position] = {}
    for topic in topics:
        for log in topic.partitions:
            key = (topic.topic_id, log.partition)
            if log.fault is None:
                end = log.synced_end
                ends[key] = Position(log.log_start_offset, end.segment.base_offset, end.position, end.offset)
            elif key in stored:
                ends[key] = stored[key]
    return ends
