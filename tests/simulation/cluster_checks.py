"""What must hold in a simulated cluster, whatever happens.

| invariant | checked |
|---|---|
| an offset that was answered at acks=all, or shown, holds that record ever after | at each of these, at the end |
| one broker acks in one epoch of a partition | at each append |
| an election raises the epoch by one, and nothing else changes it | at each change of a state |
| whoever acks has a session, as the ensemble sees it | at each answer of acks=all |
| the end that clients are told never goes back, epoch by epoch | at each ListOffsets |
| replicas have the same records below the high watermark | at the end |
| from a follower's front goes what has gone from a leader's, and no more | at each removal |
| nobody's log starts before the leader's | at the end |
| what all disks have lost is in the ledger once, and passed over by all | at the end |
| every record that was taken is in the log, in the ledger by epoch and offset, or its disk has lost it | at the end |
| what is shown or acked of a topic was produced to that topic, and not to another one of its name | at each of these |
| a topic goes where its deletion was asked for by its id, its logs go where it is deleted, and nowhere else | always |
| no disk has a log of a deleted topic | at the end |

An invariant of a partition is one of a topic's id: the next topic of the name begins anew.

Excused: what an unclean election drops, where the topic allows it; it must be in the ledger. The driver loses no more
boards for good than `min.insync.replicas` less one, until the in-sync set has recovered.

Must never come in: faults.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from edge_broker.cluster.state.cluster_state import PartitionId, PartitionState
from edge_broker.storage.log.leader_epochs import NONE
from tests.simulation.cluster_disk import GONE, Disk, Entry, Record
from tests.simulation.cluster_storage import RealDisk

if TYPE_CHECKING:
    from tests.simulation.cluster_world import Board, Process, World

SHOWN_AGAIN = 8


class Where(NamedTuple):
    """A partition of one topic, which others of its name come before and behind."""

    topic_id: str
    partition: PartitionId


At = tuple[Where, int]


class Violation(AssertionError):
    """A promise is broken."""


class Taken(NamedTuple):
    """A record that a leader has appended for a client."""

    where: Where
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
        self._leads: dict[tuple[Where, int], object] = {}
        self._read: dict[tuple[Process, Where, int], int] = {}
        self._ends: dict[Where, dict[int, int]] = {}
        self._topic_id = ""  # of the topic that there is
        self._to_go: set[str] = set()  # ids of topics whose deletion was asked for
        self.lost_journals: list[Entry] = []
        self.lost_everywhere: set[At] = set()  # on all disks at once
        self.unclean = False  # the topic allows it: what is answered and shown may go

    # as it happens

    def appended(
        self, process: Process, partition: PartitionId, epoch: int, base_offset: int, values: Sequence[int]
    ) -> None:
        """A leader has taken a batch."""
        where = Where(process.topic_id(partition), partition)
        for offset, value in enumerate(values, base_offset):
            self.taken[value] = Taken(where, epoch, offset, process.board.number)
        who = self._leads.setdefault((where, epoch), process)
        if who is not process:
            raise Violation(f"two lead {where} in epoch {epoch}")

    def advanced(self, process: Process, partition: PartitionId, mark: int) -> None:
        """A leader's high watermark has moved."""
        if mark > process.log(partition).log_end_offset:
            raise Violation(f"the high watermark of {partition} is behind the log's end")

    def acknowledges(self, process: Process, partition: PartitionId) -> None:
        """A leader answers at acks=all: nobody may have been told that it is gone, unless an act ended its session."""
        if not self._world.has_session(process):
            raise Violation(f"board {process.board.number} acks for {partition} though its session has ended")

    def acknowledged(self, record: Record, offset: int) -> None:
        """A client was answered at acks=all."""
        self.answered.add(record.value)
        self._same(self.acked, self.taken[record.value].where, offset, record, "acked")

    def _same(self, known: dict[At, Record], where: Where, offset: int, record: Record, word: str) -> None:
        if record == GONE and (where, offset) in self.lost_everywhere:
            return
        before = known.setdefault((where, offset), record)
        if before != record and not self.unclean:
            raise Violation(f"{where} offset {offset} was {word} as {before}, now as {record}")
        taken = self.taken.get(record.value)
        if taken is not None and taken.where != where:
            raise Violation(f"{where} offset {offset} is {word} as {record}, which was taken for {taken.where}")

    def shown(self, process: Process, partition: PartitionId, epoch: int, records: Sequence[Record], mark: int) -> None:
        """A consumer of this leader goes on, one behind it reads the end again; those of a new one begin anew."""
        where = Where(process.topic_id(partition), partition)
        key = (process, where, epoch)
        first = max(process.log(partition).log_start_offset, self._read.get(key, 0) - SHOWN_AGAIN)
        for offset in range(first, mark):
            self._same(self.seen, where, offset, records[offset], "shown")
        self._read[key] = mark

    def latest(self, process: Process, partition: PartitionId, epoch: int, end: int | None) -> None:
        """A client asked for the end."""
        if end is None:
            return
        ends = self._ends.setdefault(Where(process.topic_id(partition), partition), {})
        most = max((each for known, each in ends.items() if known <= epoch), default=0)
        if end < most and not self.unclean:
            raise Violation(f"the end of {partition} was {most}, and is {end} in epoch {epoch}")
        ends[epoch] = max(ends.get(epoch, 0), end)

    def removed(self, records: Sequence[Record]) -> None:
        """A leader's retention takes these, which were shown."""
        self.expired |= {record.value for record in records}

    def follows(self, process: Process, where: Where, start: int, records: Sequence[Record]) -> None:
        """A follower removes these, from `start` on, as the leader has, which had nothing where all have lost it."""
        held = (
            record.value
            for offset, record in enumerate(records, start)
            if record != GONE and (where, offset) not in self.lost_everywhere
        )
        more = set(held) - self.expired
        if more:
            raise Violation(
                f"board {process.board.number} removes {more} of {where.partition}, which no leader has removed"
            )

    def rotten(self, board: Board, records: Sequence[Record]) -> None:
        """A card has lost these."""
        self.gone |= {(board.number, record.value) for record in records}

    def rotten_everywhere(self, process: Process, partition: PartitionId, offset: int) -> None:
        """All cards have lost what they have there; it may have been a record of each of them."""
        self.lost_everywhere.add((Where(process.topic_id(partition), partition), offset))

    def cut(self, board: Board, values: set[int]) -> None:
        """A power cut took these."""
        self.gone |= {(board.number, value) for value in values}

    def lost_for_good(self, disk: Disk | RealDisk) -> None:
        """All that a disk had is lost, on whatever board it was."""
        numbers = [board.number for board in self._world.boards if board.disk is disk]
        self.gone |= {(number, value) for number in numbers for value in disk.values}
        self.lost_journals += disk.journal

    # topics

    def state_replaced(self, partition: PartitionId, before: PartitionState, after: PartitionState) -> None:
        """The ensemble has another state of a partition."""
        step, replicas = after.leader_epoch - before.leader_epoch, self._world.replicas(partition)
        highest = max(before.leader_epoch, self._latest_epoch(partition, after.leader))
        if step < 0 or after.leader_epoch > highest + len(replicas):
            raise Violation(f"the leader epoch of {partition} jumps: {before}, then {after}")
        if (
            step
            and after.line.is_marked
            and after.leader in replicas
            and after.leader_epoch % len(replicas) != replicas.index(after.leader)
        ):
            raise Violation(f"the leader epoch of {partition} is another replica's: {before}, then {after}")

    def deletion_asked(self, topic_id: str) -> None:
        """A client wants the topic of this id to go."""
        self._to_go.add(topic_id)

    def _latest_epoch(self, partition: PartitionId, broker: int) -> int:
        """Return the latest epoch in a broker's log; the state has an older one if the ensemble was set back."""
        replicas = self._world.replicas_of(partition)
        return max(
            (each.log.epochs.latest for process, each in replicas if process.board.number == broker), default=NONE
        )

    def topic_is(self, topic_id: str) -> None:
        """The ensemble has this topic now; empty: none."""
        before, self._topic_id = self._topic_id, topic_id
        if before not in ("", topic_id) and before not in self._to_go:
            raise Violation(f"topic {before} is gone, and nobody has asked for its deletion")

    def log_removed(self, process: Process, topic_id: str) -> None:
        """A broker wants a log to go."""
        if topic_id not in self._to_go:
            raise Violation(f"board {process.board.number} removes a log of topic {topic_id}, which nobody has deleted")

    # at the end

    def audit(self) -> None:
        """All faults are over, and everybody has caught up."""
        for where in self._world.current:
            partition = where.partition
            leader = self._world.leaders(partition)[0]
            records = leader.log(partition).records
            self._audit_kept(where, records, leader.log(partition).log_start_offset)
            self._audit_replicas(where, records, leader.log(partition).log_start_offset)
            self._audit_lost(where, records, leader.log(partition).log_start_offset)
            self._audit_account(where, records)

    def _audit_kept(self, here: Where, records: Sequence[Record], start: int) -> None:
        if self.unclean:
            return
        for known, word in ((self.acked, "acked"), (self.seen, "shown")):
            for (where, offset), record in known.items():
                if where != here or offset < start or self._is_lost(here, offset, records):
                    continue
                if offset >= len(records) or records[offset] != record:
                    now = records[offset] if offset < len(records) else "nothing"
                    raise Violation(f"{here} offset {offset} was {word} as {record}, and now holds {now}")

    def _is_lost(self, here: Where, offset: int, records: Sequence[Record]) -> bool:
        """Whether nothing is there, as all have lost it."""
        return offset < len(records) and records[offset] == GONE and (here, offset) in self.lost_everywhere

    def _audit_replicas(self, where: Where, records: Sequence[Record], start: int) -> None:
        for process, found in self._world.replicas_of(where.partition):
            mark, log = found.high_watermark, process.log(where.partition)
            for offset in range(max(log.log_start_offset, start), mark):
                lost = any(self._is_lost(where, offset, each) for each in (records, log.records))
                if not lost and log.records[offset] != records[offset]:
                    raise Violation(f"board {process.board.number} has another log of {where.partition}")

    def _audit_lost(self, where: Where, records: Sequence[Record], start: int) -> None:
        """What nobody has is in the ledger once, however many boards have passed over it."""
        spans = {(entry.lost.first_offset, entry.lost.end_offset) for entry in self._entries(where, "damaged")}
        for offset in range(start, len(records)):
            told = [span for span in spans if span[0] <= offset and span[1] is not None and offset < span[1]]
            if records[offset] == GONE and len(told) != 1:
                raise Violation(f"{where} offset {offset} is lost, and {told} in the ledger")

    def _entries(self, where: Where, *causes: str) -> list[Entry]:
        """What the ledger says of a partition, of all or some causes."""
        journals = [board.disk.journal for board in self._world.boards] + [self.lost_journals]
        there = [entry for journal in journals for entry in journal if (entry.topic_id, entry.partition) == where]
        return [entry for entry in there if not causes or entry.cause in causes]

    def _audit_account(self, where: Where, records: Sequence[Record]) -> None:
        entries = self._entries(where)
        kept = {record.value for record in records} | self.expired
        for value, taken in self.taken.items():
            if taken.where != where or value in kept or (taken.board, value) in self.gone:
                continue
            if not any(
                entry.lost.first_offset <= taken.offset
                and (entry.lost.end_offset is None or taken.offset < entry.lost.end_offset)
                and (entry.lost.epoch == taken.epoch or entry.lost.end_offset is None)
                for entry in entries
            ):
                raise Violation(f"{taken} is neither in the log nor in the ledger")
