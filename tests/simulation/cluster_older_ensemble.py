"""An older copy of ZooKeeper's data is put back at the end of a schedule, and a person does as CLUSTER.md says.

| step | what happens |
|---|---|
| a copy is taken | boards die, leaders change, records are acked; one board may be off from then on |
| the site loses power, the copy is put back | zxids go on after those of the copy, or repeat some that are lost |
| boards start in any order | those that acted by newer states object |
| fewer than `min.insync.replicas` object | they are written off: no acked record depends on them alone |
| more object | the newest data is put back, and whichever objects to that is written off |

No record that was acked may be lost, and all boards are in sync in the end. One partition: where several were served by
different copies, no ensemble is right for all of them.

Does not contain: the rules' unit tests, copies without other faults (test_set_back.py).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from edge_broker.cluster.effects import Objects
from tests.simulation.cluster_cards import Ending
from tests.simulation.cluster_checks import Violation
from tests.simulation.cluster_world import SESSION_MS, Board, Process

STEP_MS = 60.0
ROUNDS = 3
STAYS_OFF = 0.6  # of the schedules
KEEPS_LATE_MS = 200.0  # until a disk has kept a state, at most
JUMPS = (0, 1, 5, 1 << 12)


class OlderEnsemble:
    """One more end of a schedule; `needed` is min.insync.replicas, `acts` disturb boards, `dark` stops all of them."""

    def __init__(
        self, schedule: Ending, needed: int, acts: list[Callable[[Any], None]], dark: Callable[[Any], None]
    ) -> None:
        self._schedule, self._world, self._needed = schedule, schedule.world, needed
        self._acts, self._dark = acts, dark
        self._dice = Random(f"older ensemble {schedule.seed}")
        self._world.objected = self._objected  # type: ignore[method-assign]

    def _objected(self, process: Process, effect: Objects) -> None:
        self._world.note(f"board {process.board.number} objects to {effect.partition.partition}")

    def run(self) -> None:
        """Take a copy, go on, and put it back."""
        ensemble = self._world.ensemble
        self._world.keeps_late_ms = KEEPS_LATE_MS
        copy = ensemble.copy()
        self._world.note("- a copy of the ensemble's data is taken")
        if self._dice.random() < STAYS_OFF:
            self._dice.choice(self._world.boards).kill()  # it knows no more than the copy
            self._go_on(2 * SESSION_MS)
        for _ in range(self._dice.randint(1, 3)):
            act = self._dice.choice(self._acts)
            self._world.note(f"- {act.__name__}")
            act(self._schedule)
            if self._dice.random() < 0.5:
                self._go_on(self._dice.choice([SESSION_MS / 2, 3 * SESSION_MS]))
            else:
                self._go_on_until_a_change()
        self._dark(self._schedule)
        newest = ensemble.copy()
        self._put_back(copy)
        if (objectors := self._objectors()) and len(objectors) >= self._needed:
            self._dark(self._schedule)
            self._put_back(newest)
        for _ in range(ROUNDS):
            for board in self._objectors():
                self._write_off(board)
            self._go_on(2 * SESSION_MS)
        if self._objectors():
            raise Violation(f"boards object though they were written off: {self._objectors()}")
        self._schedule.wait("everybody is in sync beside the ensemble that was put back", self._schedule.recovered)
        answered: set[Any] = set()
        self._schedule.wait("a record is acked after all", lambda: self._schedule.all_answer(answered))

    def _put_back(self, copy: Any) -> None:
        self._world.note("- a copy of the ensemble's data is put back")
        self._world.ensemble.set_back(copy, self._dice.choice(JUMPS))
        boards = list(self._world.boards)
        self._dice.shuffle(boards)
        for board in boards:
            board.start()
            self._go_on(self._dice.choice([10.0, SESSION_MS, 4 * SESSION_MS]))
        self._go_on(4 * SESSION_MS)

    def _go_on(self, ms: float) -> None:
        """Let time pass, in which clients produce."""
        until = self._world.now_ms + ms
        while self._world.now_ms < until:
            for where in self._world.current:
                self._schedule.produce(where.partition, all_in_sync=True)
            self._schedule.pass_time(min(STEP_MS, until - self._world.now_ms))

    def _go_on_until_a_change(self) -> None:
        """Let time pass until the state is another one, and a moment more, in which disks keep it or do not."""
        partition = self._world.current[0].partition
        known, until = self._world.state(partition), self._world.now_ms + 3 * SESSION_MS
        while self._world.state(partition) == known and self._world.now_ms < until:
            self._go_on(STEP_MS / 10)
        self._go_on(self._dice.random() * KEEPS_LATE_MS)

    def _objectors(self) -> list[Board]:
        states = [self._world.state(where.partition) for where in self._world.current]
        return [self._world.board(each.broker) for state in states if state is not None for each in state.objections]

    def _write_off(self, board: Board) -> None:
        self._world.note(f"- board {board.number} is written off")
        board.kill()
        board.disk.keep_states({}, board.disk.epochs[-1])
        board.start()
