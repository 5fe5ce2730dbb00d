"""Boards whose disk is set back to an earlier state, in schedules of the cluster."""

from __future__ import annotations

from typing import Any

from edge_broker.cluster.effects import Objects
from edge_broker.cluster.partition import partition
from edge_broker.cluster.partition.partition import Partition
from edge_broker.cluster.state.acting import Lines
from edge_broker.cluster.state.cluster_state import PartitionId
from edge_broker.cluster.state.lines import Relation
from edge_broker.storage.metadata.kept_states import KeptStates
from tests.simulation import cluster_runs
from tests.simulation.cluster_disk import Disk, Record
from tests.simulation.cluster_runs import Schedule
from tests.simulation.cluster_world import Process

Logs = dict[int, list[Record]]


class SetBack:
    """One seed's run, without other faults."""

    def __init__(self, seed: int) -> None:
        self.schedule = schedule = Schedule(seed)
        self.world, self.dice = schedule.world, schedule.dice
        schedule.shape = cluster_runs.Shape(3, 3, 2, False)
        self.objected: list[tuple[int, PartitionId]] = []
        self.before: Logs = {}
        self.after: Logs = {}
        self.world.objected = self._objected  # type: ignore[method-assign]
        self.world.loss = self.world.late = schedule.luck = 0.0
        self.world.synced, self.world.deletes = True, False
        self.world.keeps_late_ms = 200.0
        self.world.before_asking = lambda process, request: None  # no topic is deleted
        self.world.before_opening = lambda process: None

    def _objected(self, process: Process, effect: Objects) -> None:
        self.objected.append((process.board.number, effect.partition))

    def begin(self) -> None:
        for board in self.world.boards:
            board.start()
        self.world.make_topic(1, 3, {"min.insync.replicas": "2"})
        self.schedule._produce_on()
        self.schedule.pass_time(8_000.0)

    def logs(self) -> Logs:
        return {board.number: list(log.records) for board in self.world.boards for log in board.disk.logs.values()}

    def run(self) -> SetBack:
        """Leave what the boards had when the copy was put back, and in the end."""
        self.begin()
        copy = self.world.ensemble.copy()
        behind = self.dice.choice(self.world.boards)
        behind.kill()
        if self.dice.random() < 0.5:
            self.wait_for_a_change()
        else:
            self.schedule.pass_time(self.dice.choice([3_000.0, 15_000.0]))
        for board in self.world.boards:
            board.kill()
        self.before = self.logs()
        self.world.ensemble.set_back(copy, self.dice.choice([0, 1, 5, 1 << 12]))
        order = [behind, *[board for board in self.world.boards if board is not behind]]
        if self.dice.random() < 0.3:
            self.dice.shuffle(order)
        for board in order:
            board.start()
            self.schedule.pass_time(self.dice.choice([10.0, 1_000.0, 4_000.0]))
        self.schedule.pass_time(10_000.0)
        self.after = self.logs()
        return self

    def wait_for_a_change(self) -> None:
        """Let time pass until the state is another one, and a moment more, in which members keep it or do not."""
        partition = self.world.partitions[0]
        known = self.world.state(partition)
        for _ in range(10_000):
            self.schedule.pass_time(1.0)
            if self.world.state(partition) != known:
                break
        self.schedule.pass_time(self.dice.random() * 200.0)

    def lost(self) -> list[int]:
        """Boards of which a record is gone that was acked by all in sync."""
        acked = {offset: record for (_, offset), record in self.world.checks.acked.items()}
        return [
            number
            for number, records in self.before.items()
            for offset, record in enumerate(records)
            if acked.get(offset) == record and self.after[number][offset : offset + 1] != [record]
        ]


def keep_nothing(self: Disk, states: KeptStates, epoch: int) -> None:
    """As a disk that has the file in memory alone."""


TWINS: dict[str, tuple[Any, str, Any]] = {
    "boards do not compare lines": (Lines, "relation", lambda self, log, state: Relation.SAME),
    "what is kept is not on the disk": (Disk, "keep_states", keep_nothing),
    "a member acts before its disk has kept the state": (Partition, "_is_kept", property(lambda self: True)),
    "a leader counts whatever state a member has kept": (Partition, "_counts", lambda self, follower: True),
    "two replicas lead in one epoch": (partition, "next_epoch", lambda epoch, leader, replicas: epoch + 1),
}
