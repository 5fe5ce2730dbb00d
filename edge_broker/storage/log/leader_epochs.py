"""Where each leader epoch began in a partition, and the questions that truncation detection asks of it.

Contains: pure rules and the lines of `leader-epoch-checkpoint`. Does not contain: files.
Source: KIP-101, KIP-279, KIP-320; Kafka's LeaderEpochFileCache (maybeTruncateNonMonotonicEntries).
"""

from collections.abc import Iterable
from typing import TypeAlias

KIND = "leader-epochs"
NONE = -1
Start: TypeAlias = tuple[int, int]


class LeaderEpochs:
    """Pairs (epoch, first offset), both rising; the tuple is replaced, never changed: a worker may read it."""

    __slots__ = ("starts",)

    def __init__(self, starts: Iterable[Start] = ()) -> None:
        self.starts: tuple[Start, ...] = tuple(starts)

    @property
    def latest(self) -> int:
        """The epoch of the last batch; -1 for an empty log."""
        return self.starts[-1][0] if self.starts else NONE

    def note(self, epoch: int, offset: int, *, first: bool = False) -> None:
        """Note a batch's epoch; only a greater one than before makes an entry.

        Greater epochs that began where this batch lies have none, as of a leader that wrote nothing: they go. Where it
        is the `first` that a log holds all greater ones go: they were of records that are removed, or were cut off.
        """
        if epoch < self.latest and (first or self.starts[-1][1] >= offset):
            greatest = epoch if first else self.latest
            self.starts = tuple(start for start in self.starts if start[1] < offset and start[0] <= greatest)
        if epoch > self.latest:
            self.starts = (*self.starts, (epoch, offset))

    def cut(self, log_start_offset: int, end_offset: int) -> None:
        """Drop entries that begin at or after the end, and those that ended before the log's start."""
        starts = [start for start in self.starts if start[1] < end_offset]
        while len(starts) > 1 and starts[1][1] <= log_start_offset:
            starts.pop(0)
        self.starts = tuple(starts)

    def at(self, offset: int) -> int:
        """The epoch in which the batch at an offset was written; -1 when there is none that old."""
        return next((epoch for epoch, start in reversed(self.starts) if start <= offset), NONE)

    def end(self, epoch: int, leader_epoch: int, end_offset: int) -> tuple[int, int]:
        """The greatest epoch not above the one asked for and where it ended; (-1, -1) when nothing can be said.

        `leader_epoch` is the epoch of now, which ends at `end_offset` even if it has no batch yet. An epoch below all
        that are known ended where the first known one began.
        """
        if epoch < 0 or epoch > leader_epoch:
            return NONE, NONE
        if epoch == leader_epoch:
            return epoch, end_offset
        found = epoch
        for known, start in self.starts:
            if known > epoch:
                return found, min(start, end_offset)
            found = known
        return found, end_offset

    def lines(self) -> list[str]:
        """The entries of the checkpoint file."""
        return [f"{epoch} {offset}" for epoch, offset in self.starts]
