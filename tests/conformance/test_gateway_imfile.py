"""rsyslog's imfile and the gateway follow the same file through the same rotations, with the same stops.

The gateway misses no line without a ledger record; the number of lines that imfile missed, or brought twice, is a
property of each test in the report, and printed. imfile has no ledger. It follows the path alone, as the gateway does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.simulation.rotating_tools import TOOLS, RotatingTool
from tests.support.conformance.files_schedule import FilesSchedule
from tests.support.imfile import Imfile
from tests.support.processes import EdgeBroker, Process, all_stopped
from tests.support.waiting import DeadlineError, wait_until

SEEDS = 2  # for each tool
LAST_S = 2.0  # for imfile's last line; one that does not come is one that imfile missed


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EdgeBroker]:
    with EdgeBroker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


class BothFollow(FilesSchedule):
    """A schedule in which imfile runs whenever the gateway runs."""

    def __init__(self, edge: EdgeBroker, directory: Path, seed: int, tool: type[RotatingTool]) -> None:
        super().__init__(edge, directory, seed, (tool,))
        self.imfile = Imfile(directory / "imfile", self.program.tool.path)

    def play(self) -> None:
        self.program.write()
        self.imfile.start()
        super().play()

    def _gateway(self) -> None:
        super()._gateway()
        self._follow_suit()

    def _come_to_rest(self) -> None:
        super()._come_to_rest()
        self._follow_suit()
        self.program.write()

    def _follow_suit(self) -> None:
        if self.gateway.running and not self.imfile.running:
            self.imfile.start()
        elif not self.gateway.running and self.imfile.running:
            self.imfile.kill()

    def missed_by_imfile(self) -> tuple[int, int]:
        """Return how many lines imfile missed, and how many it brought more than once."""
        last = list(self.program.written)[-1]
        try:
            wait_until(lambda: last in self.imfile.arrived(), LAST_S, "imfile's last line")
        except DeadlineError:
            print("the last line that was written did not arrive by imfile")
        arrived = Counter(self.imfile.arrived())
        missed = sum(line not in arrived for line in self.program.written)
        return missed, sum(count > 1 for count in arrived.values())


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.__name__)
def test_the_gateway_accounts_for_each_line_that_imfile_may_miss(
    edge: EdgeBroker,
    tmp_path: Path,
    tool: type[RotatingTool],
    seed: int,
    record_property: Callable[[str, object], None],
) -> None:
    schedule = BothFollow(edge, tmp_path, seed, tool)
    processes: tuple[Process, ...] = (schedule.gateway, schedule.imfile)
    with all_stopped(*processes):
        schedule.play()
        missed, twice = schedule.missed_by_imfile()
    record_property("lines_written", len(schedule.program.written))
    record_property("lines_missed_by_imfile", missed)
    record_property("lines_twice_by_imfile", twice)
    print(
        f"{schedule.program.tool}: {len(schedule.program.written)} lines; imfile: {missed} missed, {twice} twice;",
        end=" ",
    )
    print(f"gateway: {schedule.missing()} missed, ledgered {schedule.ledgered()}")
