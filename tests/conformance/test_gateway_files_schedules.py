"""Random rotations with a real gateway and a real broker: each line is a record, a dead letter or in the ledger.

| actor | steps |
|---|---|
| program, its clock may jump | write lines, some of them too long, and beginnings of lines |
| rotating tool, one of five (`tests.simulation.rotating_tools`) | rotate, up to four times at once |
| gateway and broker | as in `tests.support.gateway_schedules` |

The schedules in process are tests/simulation/gateway_files.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.conformance.files_schedule import FilesSchedule
from tests.support.gateway_schedules import FEW, play, play_many
from tests.support.processes import EdgeBroker


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EdgeBroker]:
    with EdgeBroker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.mark.parametrize("seed", range(FEW))
def test_every_line_is_accounted_for(edge: EdgeBroker, tmp_path: Path, seed: int) -> None:
    play(partial(FilesSchedule, edge), tmp_path, seed)


@pytest.mark.night
@pytest.mark.timeout(3_600)
def test_every_line_is_accounted_for_in_many_schedules(edge: EdgeBroker, tmp_path: Path) -> None:
    play_many(partial(FilesSchedule, edge), tmp_path)
