"""A cluster of a release that knows no lines of states is upgraded board by board, and one board goes back.

Nothing acked is lost, no board objects, and lines begin once the last older board is gone.
"""

from __future__ import annotations

import pytest

from edge_broker.cluster.state.cluster_state import PartitionState
from tests.simulation.set_back import SetBack


class Upgrade(SetBack):
    """One seed's run, without other faults."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.world.older = {1, 2, 3}

    def restart(self, number: int, *, older: bool) -> None:
        board = self.world.board(number)
        board.kill()
        self.schedule.pass_time(self.dice.choice([10.0, 500.0, 3_000.0]))
        (self.world.older.add if older else self.world.older.discard)(number)
        board.start()
        self.schedule.pass_time(self.dice.choice([2_000.0, 4_000.0]))

    @property
    def state(self) -> PartitionState:
        state = self.world.state(self.world.partitions[0])
        assert state is not None
        return state

    def assert_all_is_there(self) -> None:
        self.schedule.pass_time(8_000.0)
        assert self.objected == []
        (leader,) = self.world.leaders(self.world.partitions[0])
        assert {each.broker for each in self.state.in_sync} == {1, 2, 3}
        records = leader.log(self.world.partitions[0]).records
        for (_, offset), record in self.world.checks.acked.items():
            assert records[offset] == record


@pytest.mark.parametrize("seed", range(6))
def test_lines_begin_once_the_last_older_board_is_gone(seed: int) -> None:
    run = Upgrade(seed)
    run.begin()
    order = [1, 2, 3]
    run.dice.shuffle(order)
    for number in order:
        assert not run.state.line.is_marked
        run.restart(number, older=False)
    run.assert_all_is_there()
    assert run.state.line.is_marked
    assert run.world.boards[0].disk.kept_states
    taken = len(run.world.checks.acked)
    run.restart(order[0], older=True)
    run.restart(order[1], older=False)
    run.assert_all_is_there()
    run.restart(order[0], older=False)
    run.assert_all_is_there()
    assert run.state.line.is_marked
    assert len(run.world.checks.acked) > taken


@pytest.mark.parametrize("seed", range(4))
def test_a_board_that_was_off_while_the_others_went_back_and_came_again_is_written_off(seed: int) -> None:
    """It objects, as nothing tells this from an older copy: the older release's states name no ancestors."""
    run = Upgrade(seed)
    run.world.older = set()
    run.begin()
    away = run.dice.choice(run.world.boards)
    away.kill()
    run.schedule.pass_time(4_000.0)
    others = [board.number for board in run.world.boards if board is not away]
    for older in (True, False):
        for number in others:
            run.restart(number, older=older)
    away.start()
    run.schedule.pass_time(4_000.0)
    assert {each.broker for each in run.state.objections} == {away.number}
    away.kill()
    away.disk.keep_states({}, away.disk.epochs[-1])
    away.start()
    run.objected.clear()
    run.assert_all_is_there()
