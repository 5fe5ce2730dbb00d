"""A small part of `make crash`: programs of the log on the simulated disk, and proof that they would notice."""

from __future__ import annotations

import pytest

from edge_broker.testing.disk import SimulatedFile
from tests.simulation.crash import INTERLEAVED, run_seed, shrink

FIRST_SEED = 1_000_000
SEEDS = 8  # one of each kind that crash.py knows


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_log_keeps_its_promise_through_crashes(seed: int) -> None:
    result = run_seed(seed)
    assert not result.failure, "\n".join((result.failure, *result.trace))
    assert result.points > (2 if seed % 8 == INTERLEAVED else 20)


@pytest.mark.leaves(".")
def test_a_broker_on_a_disk_that_lies_about_syncs_is_caught_and_the_way_there_is_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lie(file: SimulatedFile) -> None:
        file._disk.step("datasync", file.path)

    monkeypatch.setattr(SimulatedFile, "datasync", lie)
    failing = next(seed for seed in range(10) if run_seed(seed).failure)
    failed, steps = shrink(failing)
    assert failed.failure
    assert steps <= 14
    assert failed.trace
