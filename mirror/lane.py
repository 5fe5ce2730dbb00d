"""One partition between source and target: what was read of it, its offsets, and whether it may be read on.

No client may be used here, and nothing is decided.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from aiokafka import TopicPartition

from kafka_wire.cluster import Leader, Topic
from mirror import plan
from mirror.offsets import PartitionOffsets


class Lane:
    """One partition on its way: what was read and not yet acknowledged, and its offsets.

    | leader_epoch | go_back_to | the partition                                                                   |
    |--------------|------------|---------------------------------------------------------------------------------|
    | None         | None       | is not read: its position is to be judged                                       |
    | None         | an offset  | is not read: what was read is still sent, then it is read again from the offset |
    | an epoch     | None       | is read under this epoch, -1 where the source tells none                        |
    """

    def __init__(self, partition: TopicPartition, target_topic: str, settings: Mapping[str, str]) -> None:
        self.partition = partition
        self.target_topic = target_topic
        self.settings = settings  # that the target's topic is made with; cleanup.policy is always among them
        self.settings_at = time.monotonic()  # when the source told them
        self.compacted_below = 0  # what the cleaner has taken before the topic ceased to compact lies below
        self.partitions = 1
        self.topic_id: str | None = None
        self.leader = Leader(-1, -1)
        self.leader_epoch: int | None = None
        self.go_back_to: int | None = None
        self.go_back_epoch = -1  # the greatest leader epoch that the source has below there, -1 when it did not say
        self.wake = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.trouble = ""
        self.drained = asyncio.Event()  # set while nothing read is left to be acknowledged
        self.sent_at: float | None = None
        self.ensured_in = 0  # the generation of the producer for which the target's partition was made sure of
        self.stored_at = time.monotonic()  # when the source's group was last told the position, in this life
        self.batch_bytes_max = 0
        self.spans: tuple[int, int, list[plan.BatchSpan]] = (0, 0, [])
        self.start(PartitionOffsets(0))

    def start(self, offsets: PartitionOffsets) -> None:
        """Begin from these offsets with nothing read."""
        self.offsets = offsets
        self.read_offset = offsets.position
        self.buffer: deque[Any] = deque()
        self.buffered_bytes = 0
        self.drained.set()

    def take_settings(self, settings: Mapping[str, str], log_end: int) -> None:
        """Note the topic's settings of now, where its log ends at `log_end`."""
        if self.compacted and "compact" not in settings["cleanup.policy"]:
            self.compacted_below = max(self.compacted_below, log_end)
        self.settings, self.settings_at = settings, time.monotonic()

    def found(self, topic: Topic) -> None:
        """Note what the source's metadata says; where the leader epoch rose, the position is to be judged anew.

        A lower one is a node's old news: if it is the truth, the leader refuses the next fetch.
        """
        self.partitions, self.topic_id = len(topic.leaders), topic.topic_id
        self.leader = topic.leaders[self.partition.partition]
        if self.leader_epoch is not None and self.leader.epoch > self.leader_epoch:
            self.leader_epoch = None

    @property
    def name(self) -> str:
        """The partition, for people."""
        return f"{self.partition.topic}-{self.partition.partition}"

    @property
    def is_read(self) -> bool:
        """Whether the position stands, so that it may be read on."""
        return self.leader_epoch is not None

    @property
    def may_go_back(self) -> bool:
        """Whether it is to be read again from an offset, and all that was read is safe at the target."""
        return self.go_back_to is not None and self.drained.is_set()

    @property
    def has_epoch(self) -> bool:
        """Whether the leader epoch of the last record that was read is known."""
        return self.offsets.epochs.below(self.read_offset) is not None

    @property
    def compacted(self) -> bool:
        """Whether the source's cleaner may have taken records out of what is read next."""
        return "compact" in self.settings["cleanup.policy"] or self.read_offset < self.compacted_below

    @property
    def at_target(self) -> TopicPartition:
        """The partition of the target that the records go to."""
        return TopicPartition(self.target_topic, self.partition.partition)

    def fields(self) -> dict[str, object]:
        """Return what a log line says of this lane."""
        return {"topic": self.partition.topic, "partition": self.partition.partition}
