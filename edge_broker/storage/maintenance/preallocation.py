"""Preallocate blocks after the end of the ledger and of committed offsets, so that losses and commits go on.

Contains: keeping them. Does not contain: what is removed to make space (eviction_plan.py). Source: fallocate(2)
with FALLOC_FL_KEEP_SIZE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_broker.storage.files.atomic_files import OUT_OF_SPACE
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.storage.log.partition_log import PartitionLog
    from edge_broker.storage.segment.segment import Segment

RESERVED_BYTES = 256 << 10


class Reserve:
    """Blocks kept ahead of a log's end; `possible` turns False where the file system cannot."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.possible = True
        self._segment: Segment | None = None
        self._end = 0

    @runs_in()
    def renew(self) -> None:
        """Set blocks aside when less than half is left; without space what was reserved stays. OSError."""
        active = self.log.segments[-1]
        if active is not self._segment:
            self._segment, self._end = active, 0
        if not self.possible or self._end - active.size >= RESERVED_BYTES // 2:
            return
        size = active.size
        try:
            self.possible = active.file.reserve(size, RESERVED_BYTES)
        except OSError as error:
            if error.errno in OUT_OF_SPACE:
                return  # asked for again by the next look at the disk
            raise
        self._end = size + RESERVED_BYTES
