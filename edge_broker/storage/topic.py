"""A topic of a data directory: its id, its logs and its configuration.

Contains: those values. Does not contain: the files that keep them (topic_record.py), who may see the topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_broker.storage.metadata.topic_record import TopicRecord

if TYPE_CHECKING:
    import uuid

    from edge_broker.configuration.settings import LogSettings
    from edge_broker.storage.log.partition_log import PartitionLog


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
