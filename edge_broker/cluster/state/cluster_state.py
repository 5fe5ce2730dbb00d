"""The contents of a cluster's znodes, as values (FORMATS.md has their bytes, znode_codec.py reads and writes them).

A broker's epoch is the zxid that made its registration: no two registrations of an ensemble share one, so it is the
start count that the in-sync set goes by. A data directory keeps the epochs under which it was registered (`Identity`).
So an entry of the in-sync set names one disk: an empty, cloned or restored one does not have that epoch.

Not told apart: a copy of a disk that was taken while the broker ran, and put back before it was registered again.

Contains: the values, and questions that one of them can answer. Does not contain: bytes, paths, decisions.
Source: KIP-841, KIP-903 (broker epochs in the in-sync set), KIP-497.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from edge_broker.cluster.state.lines import UNMARKED_LINE, Line
from edge_broker.storage.metadata.broker_registrations import EPOCHS_KEPT

NO_LEADER = -1
PROTOCOLS = (1, 3)
"""The oldest and the newest way in which this release talks to others; a release knows that of the one before it.

2: `__edge_ledger` is the cluster's; it is made once all that are there know that.
3: states of partitions say from which states they come (lines.py); a line begins once all that are there know that.
"""
ONE_LEDGER_SINCE = 2
LINES_SINCE = 3


class PartitionId(NamedTuple):
    """Which partition."""

    topic: str
    partition: int


class InSyncReplica(NamedTuple):
    """One entry of the in-sync set: a broker, its disk, and the registration under which it was caught up."""

    broker: int
    directory: str
    epoch: int


class OfflineLog(NamedTuple):
    """The report of an ISR member under a registration: its log cannot be read or written."""

    broker: int
    epoch: int


class Objection(NamedTuple):
    """A broker whose disk acted by a state of another line: no broker acts for the partition while one stands."""

    broker: int
    state_id: str  # that its disk has kept


class PartitionState(NamedTuple):
    """The state znode of a partition; it is only ever replaced by its version."""

    leader: int
    leader_epoch: int
    in_sync: tuple[InSyncReplica, ...]
    offline: tuple[OfflineLog, ...] = ()
    line: Line = UNMARKED_LINE
    objections: tuple[Objection, ...] = ()

    def entry(self, broker: int) -> InSyncReplica | None:
        """The in-sync set's entry of a broker."""
        for each in self.in_sync:
            if each.broker == broker:
                return each
        return None

    def naming(self, in_sync: tuple[InSyncReplica, ...]) -> PartitionState:
        """The same with another set; what was said by who is not named, or was caught up since then, goes."""
        epochs = {each.broker: each.epoch for each in in_sync}
        offline = tuple(each for each in self.offline if each.broker in epochs and epochs[each.broker] <= each.epoch)
        return self._replace(in_sync=in_sync, offline=offline)


class Registration(NamedTuple):
    """A broker that has a session now."""

    broker: int
    epoch: int
    directory: str
    rack: str | None = None
    endpoints: tuple[tuple[str, str], ...] = ()  # listener name and HOST:PORT
    protocols: tuple[int, int] = PROTOCOLS

    @property
    def replica(self) -> InSyncReplica:
        """The entry that it would have in an in-sync set."""
        return InSyncReplica(self.broker, self.directory, self.epoch)

    def address(self, listener: str) -> str | None:
        """HOST:PORT of its listener of this name."""
        return next((at for name, at in self.endpoints if name == listener), None)


class Topic(NamedTuple):
    """A topic as it was made: the replicas of each partition, the preferred leader first."""

    topic_id: str
    replicas: tuple[tuple[int, ...], ...]
    config: Mapping[str, str]

    @property
    def min_in_sync(self) -> int:
        """min.insync.replicas, which produce with acks=all is held to."""
        return int(self.config.get("min.insync.replicas", "1"))

    @property
    def may_elect_unclean(self) -> bool:
        """unclean.leader.election.enable."""
        return self.config.get("unclean.leader.election.enable", "false") == "true"

    def gives(self, partition: int, broker: int) -> bool:
        """Return whether the topic has this partition, and a replica of it on this broker."""
        return 0 <= partition < len(self.replicas) and broker in self.replicas[partition]

    def disks_needed(self, partition: int) -> int:
        """Disks that the high watermark waits for: min.insync.replicas, or all where there are fewer replicas."""
        return min(self.min_in_sync, len(self.replicas[partition]))


NEVER_FULL_MS = float("-inf")


class Identity(NamedTuple):
    """This broker and its disk: what the data directory has kept of its registrations, the one of now last.

    `cluster` is the id of the cluster that the disk belongs to, "": of none yet. `full_ms` is when the disk counts as
    full last, as the broker starts: the start if it was full a moment before, by the clock of the member.
    """

    broker: int
    directory: str
    epochs: tuple[int, ...] = ()
    cluster: str = ""
    full_ms: float = NEVER_FULL_MS

    @property
    def replica(self) -> InSyncReplica:
        """Its entry under the registration of now."""
        return InSyncReplica(self.broker, self.directory, self.epochs[-1])

    def is_named_by(self, entry: InSyncReplica) -> bool:
        """Whether an entry of this broker id speaks of this very disk."""
        return entry.directory == self.directory and entry.epoch in self.epochs

    def with_registration(self, epoch: int, cluster: str) -> Identity:
        """The same under a new registration."""
        return self._replace(epochs=(*self.epochs, epoch)[-EPOCHS_KEPT:], cluster=cluster)
