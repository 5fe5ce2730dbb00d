"""An older copy of ZooKeeper's data is put back: no board truncates, and every partition that went on waits.

Each seed takes a copy, lets the in-sync set and the leader change, and puts the copy back. Zxids go on where the copy
ends, or jump. The board that was behind may be the first one that is there.
"""

from __future__ import annotations

import pytest

from tests.simulation.cluster_checks import Violation
from tests.simulation.set_back import TWINS, SetBack

SEEDS = 16
FOUND_BY = {
    "boards do not compare lines": 0,
    "what is kept is not on the disk": 0,
    "a member acts before its disk has kept the state": 0,
    "a leader counts whatever state a member has kept": 66,
    "two replicas lead in one epoch": 2,
}


@pytest.mark.parametrize("first", range(0, SEEDS, 8))
def test_no_board_truncates_by_an_older_copy(first: int) -> None:
    for seed in range(first, first + 8):
        run = SetBack(seed).run()
        assert len(run.world.checks.acked) > 50
        assert run.lost() == [], seed
        state = run.world.state(run.world.partitions[0])
        assert state is not None
        if run.objected:
            assert {broker for broker, _ in run.objected} == {each.broker for each in state.objections}
            assert not run.world.leaders(run.world.partitions[0])
            assert len(run.objected) <= 3, "boards that object do not write in turn"
        else:
            assert run.world.leaders(run.world.partitions[0])


def test_some_seeds_object() -> None:
    runs = [SetBack(seed).run() for seed in range(8)]
    assert sum(bool(run.objected) for run in runs) >= 4


TWIN_SEEDS = 120


@pytest.mark.parametrize("rule", TWINS)
def test_a_rule_that_is_broken_is_found(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*TWINS[rule])

    def is_found(seed: int) -> bool:
        try:
            return bool(SetBack(seed).run().lost())
        except Violation:
            return True

    found = next((seed for seed in (FOUND_BY[rule], *range(TWIN_SEEDS)) if is_found(seed)), None)
    assert found is not None, f"{TWIN_SEEDS} seeds do not find it"
