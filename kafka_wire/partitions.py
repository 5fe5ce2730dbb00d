"""PURE: the name of a partition."""

from __future__ import annotations

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A topic's name, and the partition's number."""

    topic: str
    partition: int
