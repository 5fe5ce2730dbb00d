"""Random schedules of journals with a real gateway and a real broker: every entry is a record or in the ledger.

| actor | steps |
|---|---|
| machine, one to three, clocks a minute apart | log, rotate, delete old files, boot, set the clock |
| gateway and broker | as in `tests.support.gateway_schedules` |

The schedules in process are tests/simulation/gateway_journal.py.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.gateway_schedules import FEW, GatewaySchedule, play, play_many
from tests.support.journal_site import SimulatedJournald
from tests.support.processes import EdgeBroker


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EdgeBroker]:
    with EdgeBroker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


WEIGHTS = {"log": 40, "rotate": 10, "delete": 6, "boot": 4, "jump": 4, "gateway": 10, "broker": 3}


class JournalSchedule(GatewaySchedule):
    """One schedule's machines, with a gateway that follows their journals."""

    def __init__(self, edge: EdgeBroker, directory: Path, seed: int) -> None:
        chance, topic, journal = random.Random(seed), f"journal-{seed}", directory / "journal"
        journal.mkdir(parents=True)
        source = f'[journal]\ntopic = "{topic}"\nstart = "beginning"\nsave_interval_ms = 0\ndirectory = "{journal}"\n'
        super().__init__(edge, directory, chance, topic, source=source, weights=WEIGHTS)
        self.machines: list[SimulatedJournald] = []
        self._known_chains: set[str] = set()
        for _ in range(self.chance.randint(1, 3)):
            machine = SimulatedJournald(journal, self.chance, self.chance.random() < 0.5)
            machine.jump(self.chance.uniform(-60, 60))
            self.machines.append(machine)

    def close(self) -> None:
        super().close()
        for machine in self.machines:
            machine.close()

    @property
    def _machine(self) -> SimulatedJournald:
        self._note_chains()
        return self.chance.choice(self.machines)

    def _note_chains(self) -> None:
        """Note the chains with a position. One that comes and goes between two scans leaves no trace."""
        for path in self.state.glob("journal*.json"):
            content = json.loads(path.read_text())
            self._known_chains.update(f"var{chain}" for chain in content.get("positions", {}))

    def _log(self) -> None:
        machine = self._machine
        kind = self.chance.choice(("system", "system", "user-1000"))
        first, count = len(machine.written), self.chance.choice((1, 5, 60))
        machine.log(*(f"{machine.machine_id[:8]} {first + each}" for each in range(count)), kind=kind)

    def _rotate(self) -> None:
        self._machine.rotate()

    def _delete(self) -> None:
        self._machine.vacuum(self.chance.randint(0, 2))

    def _boot(self) -> None:
        self._machine.boot()

    def _jump(self) -> None:
        self._machine.jump(self.chance.uniform(-3_600, 3_600))

    def _go_on_writing(self) -> None:
        self._log()
        self._rotate()

    def _account(self) -> str:
        self._note_chains()
        entries = [entry for machine in self.machines for entry in machine.written]
        written = {entry.message for entry in entries}
        shown = {entry.message for entry in entries if entry.file_count or entry.chains & self._known_chains}
        records, ledger = self.arrived(self.topic), [row["records"] for row in self.losses()]
        missing, known = written - records, sum(count or 0 for count in ledger)
        is_unknown = None in ledger
        if records <= written and known <= len(missing) and (is_unknown or known >= len(missing & shown)):
            return ""
        return (
            f"{len(written)} written, {len(missing)} no records, {len(missing & shown)} of them of known chains,"
            f" {known} ledgered, an unknown number: {is_unknown}"
        )


@pytest.mark.parametrize("seed", range(FEW))
def test_every_entry_is_accounted_for(edge: EdgeBroker, tmp_path: Path, seed: int) -> None:
    play(partial(JournalSchedule, edge), tmp_path, seed)


@pytest.mark.night
@pytest.mark.timeout(3_600)
def test_every_entry_is_accounted_for_in_many_schedules(edge: EdgeBroker, tmp_path: Path) -> None:
    play_many(partial(JournalSchedule, edge), tmp_path)
