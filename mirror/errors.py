"""What goes wrong at either end: SourceError and TargetError mean "try again later", their subclasses what else to do.

Must never come in: a client's own exceptions, which are mapped where they are raised.
"""

from __future__ import annotations

from aiokafka import TopicPartition


class SourceError(Exception):
    """The source cannot serve now."""


class OutOfRangeError(SourceError):
    """The source no longer has, or never had, the positions asked for."""

    def __init__(self, positions: dict[TopicPartition, int]) -> None:
        super().__init__(f"out of range: {positions}")
        self.positions = positions


class FencedError(SourceError):
    """Another leader leads these partitions, or under another epoch, than their positions were judged under."""

    def __init__(self, partitions: frozenset[TopicPartition]) -> None:
        super().__init__(f"the leader epoch changed: {sorted(partitions)}")
        self.partitions = partitions


class PositionsError(SourceError):
    """The group cannot tell its positions now."""


class TargetError(Exception):
    """The target cannot take the batch now, or the producer is spent."""


class RecordTooLargeError(TargetError):
    """The target refuses the batch for its size."""


class TopicRefusedError(TargetError):
    """The target is well, but does not let this topic be made, or grow."""
