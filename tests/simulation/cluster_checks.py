"""What must hold in a simulated cluster, whatever happens.

| invariant | checked |
|---|---|
| an offset that was answered at acks=all, or shown, holds that record ever after | at each of these, at the end |
| one broker acks in one epoch of a partition | at each append |
| whoever acks has a session, as the ensemble sees it | at each answer of acks=all |
| the end that clients are told never goes back, epoch by epoch | at each ListOffsets |
| replicas have the same records below the high watermark | at the end |
| from a follower's front goes what has gone from a leader's, and no more | at each removal |
| nobody's log starts before the leader's | at the end |
| every record that was taken is in the log, in the ledger by epoch and offset, or its disk has lost it | at the end |

Excused: what an unclean election drops, where the topic allows it; it must be in the ledger. The driver loses no more
boards for good than `min.insync.replicas` less one, until the in-sync set has recovered.

Must never come in: faults.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from edge_broker.cluster.state import PartitionId
from tests.simulation.cluster_disk import GONE, Disk, Entry, Record
from tests.simulation.cluster_storage import RealDisk

if TYPE_CHECKING:
    from tests.simulation.cluster_world import Board, Process, World

SHOWN_AGAIN = 8
At = tuple[PartitionId, int]


class Violation(AssertionError):
    """A promise is broken."""


class Taken(NamedTuple):
    """A record that a leader has appended for a client."""

    partition: PartitionId
    epoch: int
    offset: int
    board: int


class Checks:
    """The history of one run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.acked: dict[At, Record] = {}
        self.seen: dict[At, Record] = {}
        self.taken: dict[int, Taken] = {}
        self.answered: set[int] = set()
        self.expired: set[int] = set()  # values that a leader's retention has taken
        self.gone: set[tuple[int, int]] = set()  # (board, value) that a disk has lost
        self._leads: dict[tuple[PartitionId, int], object] = {}
        self._read: dict[tuple[Process, PartitionId, int], int] = {}
        self._ends: dict[PartitionId, dict[int, int]] = {}
        self.lost_journals: list[Entry] = []
        self.unclean = False  # the topic allows it: what is answered and shown may go

    # as it happens

    def appended(self, process: Process, partition: PartitionId, epoch: int, offset: int, value: int) -> None:
        """A leader has taken a record."""
        self.taken[value] = Taken(partition, epoch, offset, process.board.number)
        who = self._leads.setdefault((partition, epoch), process)
        if who is not process:
            raise Violation(f"two lead {partition} in epoch {epoch}")

    def advanced(self, process: Process, partition: PartitionId, mark: int) -> None:
        """A leader's high watermark has moved."""
        if mark > process.log(partition).log_end_offset:
            raise Violation(f"the high watermark of {partition} is behind the log's end")

    def acknowledges(self, process: Process, partition: PartitionId) -> None:
        """A leader answers at acks=all: nobody may have been told that it is gone, unless an act ended its session."""
        if not self._world.has_session(process):
            raise Violation(f"board {process.board.number} acks for {partition} though its session has ended")

    def acknowledged(self, partition: PartitionId, record: Record, offset: int) -> None:
        """A client was answered at acks=all."""
        self.answered.add(record.value)
        self._same(self.acked, partition, offset, record, "acked")

    def _same(self, known: dict[At, Record], partition: PartitionId, offset: int, record: Record, word: str) -> None:
        before = known.setdefault((partition, offset), record)
        if before != record and not self.unclean:
            raise Violation(f"{partition} offset {offset} was {word} as {before}, now as {record}")

    def shown(self, process: Process, partition: PartitionId, epoch: int, records: Sequence[Record], mark: int) -> None:
        """A consumer of this leader goes on, one behind it reads the end again; those of a new one begin anew."""
        key = (process, partition, epoch)
        first = max(process.log(partition).log_start_offset, self._read.get(key, 0) - SHOWN_AGAIN)
        for offset in range(first, mark):
            self._same(self.seen, partition, offset, records[offset], "shown")
        self._read[key] = mark

    def latest(self, process: Process, partition: PartitionId, epoch: int, end: int | None) -> None:
        """A client asked for the end."""
        if end is None:
            return
        ends = self._ends.setdefault(partition, {})
        most = max((each for known, each in ends.items() if known <= epoch), default=0)
        if end < most and not self.unclean:
            raise Violation(f"the end of {partition} was {most}, and is {end} in epoch {epoch}")
        ends[epoch] = max(ends.get(epoch, 0), end)

    def removed(self, records: Sequence[Record]) -> None:
        """A leader's retention takes these, which were shown."""
        self.expired |= {record.value for record in records}

    def follows(self, process: Process, partition: PartitionId, records: Sequence[Record]) -> None:
        """A follower removes these, as the leader has."""
        more = {record.value for record in records if record != GONE} - self.expired
        if more:
            raise Violation(f"board {process.board.number} removes {more} of {partition}, which no leader has removed")

    def cut(self, board: Board, values: set[int]) -> None:
        """A power cut took these."""
        self.gone |= {(board.number, value) for value in values}

    def lost_for_good(self, disk: Disk | RealDisk) -> None:
        """All that a disk had is lost, on whatever board it was."""
        numbers = [board.number for board in self._world.boards if board.disk is disk]
        self.gone |= {(number, value) for number in numbers for value in disk.values}
        self.lost_journals += disk.journal

    # at the end

    def audit(self) -> None:
        """All faults are over, and everybody has caught up."""
        for partition in self._world.partitions:
            leader = self._world.leaders(partition)[0]
            records = leader.log(partition).records
            self._audit_kept(partition, records, leader.log(partition).log_start_offset)
            self._audit_replicas(partition, records)
            self._audit_account(partition, records)

    def _audit_kept(self, partition: PartitionId, records: Sequence[Record], start: int) -> None:
        if self.unclean:
            return
        for known, word in ((self.acked, "acked"), (self.seen, "shown")):
            for (where, offset), record in known.items():
                if where == partition and offset >= start and (offset >= len(records) or records[offset] != record):
                    now = records[offset] if offset < len(records) else "nothing"
                    raise Violation(f"{partition} offset {offset} was {word} as {record}, and now holds {now}")

    def _audit_replicas(self, partition: PartitionId, records: Sequence[Record]) -> None:
        for process, found in self._world.replicas_of(partition):
            mark, log = found.high_watermark, process.log(partition)
            both = slice(max(log.log_start_offset, records.count(GONE)), mark)
            if log.records[both] != records[both]:
                raise Violation(f"board {process.board.number} has another log of {partition}")

    def _audit_account(self, partition: PartitionId, records: Sequence[Record]) -> None:
        journals = [board.disk.journal for board in self._world.boards] + [self.lost_journals]
        entries = [entry for journal in journals for entry in journal if entry.partition == partition]
        kept = {record.value for record in records} | self.expired
        for value, taken in self.taken.items():
            if taken.partition != partition or value in kept or (taken.board, value) in self.gone:
                continue
            if not any(
                entry.lost.first_offset <= taken.offset
                and (entry.lost.end_offset is None or taken.offset < entry.lost.end_offset)
                and (entry.lost.epoch == taken.epoch or entry.lost.end_offset is None)
                for entry in entries
            ):
                raise Violation(f"{taken} is neither in the log nor in the ledger")
