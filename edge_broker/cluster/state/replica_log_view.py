"""A partition's log as the cluster reads it; a Replica (replica_log.py) has it all, a simulation's log no more.

Does not contain: writing. Changes are effects (effects.py).
"""

from __future__ import annotations

from typing import Protocol

from edge_broker.storage.log.leader_epochs import NONE, LeaderEpochs

NEWEST_EPOCH = (1 << 31) - 1
"""Instead of an epoch: the newest of a log."""


class ReplicaLog(Protocol):
    """A log as others see it."""

    @property
    def log_start_offset(self) -> int:
        """First offset still held."""

    @property
    def log_end_offset(self) -> int:
        """End of what is written."""

    @property
    def acknowledged_offset(self) -> int:
        """End of what counts as replicated: the disk has confirmed it, or the topic does not ask for that."""

    def may_lack(self, epoch: int) -> bool:
        """Whether a power loss may have taken what it had acknowledged under a registration."""

    @property
    def unconfirmed_epoch(self) -> int:
        """The epoch in which this replica led and appended what its disk has not confirmed; NONE: nothing is so."""

    @property
    def epochs(self) -> LeaderEpochs:
        """Where each leader epoch began."""

    @property
    def online(self) -> bool:
        """Whether it can be read and written."""

    @property
    def missing(self) -> bool:
        """Whether it is offline as nothing was left of it at the start: only what others have can take its place."""

    @property
    def has_missing(self) -> bool:
        """Whether it lacks what others may have, and it was not recorded as lost."""

    def lost_until(self, offset: int) -> int:
        """Where what was recorded as lost from an offset on ends; the offset itself, where nothing was."""

    @property
    def full(self) -> bool:
        """Whether its disk takes nothing more for now."""

    @property
    def busy(self) -> bool:
        """Whether an operation in progress may move its end, as a write: `log_moved` comes after it."""


class NoLog:
    """Stands for a log that cannot be made on this broker: always offline."""

    __slots__ = ("epochs",)
    log_start_offset = log_end_offset = acknowledged_offset = 0
    online = missing = has_missing = full = busy = False
    unconfirmed_epoch = NONE

    def __init__(self) -> None:
        self.epochs = LeaderEpochs()

    def may_lack(self, epoch: int) -> bool:
        """It never acknowledged anything."""
        return False

    def lost_until(self, offset: int) -> int:
        """It never held anything."""
        return offset


def last_epoch(log: ReplicaLog) -> int:
    """The epoch of the last record; an epoch that began at the end has none. -1: there is no record."""
    if log.log_end_offset == log.log_start_offset:
        return NONE
    return log.epochs.at(log.log_end_offset - 1)


def epoch_end(log: ReplicaLog, epoch: int) -> tuple[int, int]:
    """Return the greatest known epoch not above this one, and where it ended; of NEWEST_EPOCH the last record's."""
    if epoch == NEWEST_EPOCH:
        return last_epoch(log), log.log_end_offset
    return log.epochs.end(epoch, NEWEST_EPOCH, log.log_end_offset)
