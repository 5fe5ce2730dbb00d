"""2,000 schedules of rotations, stops and disagreeing clocks against the reader of log files.

Invariants: see `gateway_files`. A failure names the seed that replays it.
"""

from __future__ import annotations

import pytest

from tests.simulation import gateway_files
from tests.simulation.gateway_files import Broken, run_schedule, run_schedules

SCHEDULES = 2_000
FIRST_SEED = 0
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_what_was_written_is_read_or_ledgered(part: int) -> None:
    count = SCHEDULES // PARTS
    run_schedules(FIRST_SEED + part * count, count)


def test_a_reader_that_skips_a_line_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    take = gateway_files.Reader._take

    def forgetful(self: gateway_files.Reader, text: bytes) -> None:
        if len(self.read) != 7 or text in self.read:
            take(self, text)
        else:
            self.read[b"-"] = 1

    monkeypatch.setattr(gateway_files.Reader, "_take", forgetful)
    with pytest.raises(Broken):
        run_schedules(0, 20)


def test_one_seed_is_one_schedule() -> None:
    said: list[list[str]] = [[], []]
    for told in said:
        run_schedule(7, told.append)
    assert said[0] == said[1]
