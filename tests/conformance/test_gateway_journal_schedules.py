"""Random schedules of journals with a real gateway and a real broker: every entry is a record or in the ledger.

| actor | steps |
|---|---|
| machine, one to three, clocks a minute apart | log, rotate, delete old files, boot, set the clock |
| gateway process | kill -9, stay stopped, start |
| broker process | stand still, go on |

A seed decides a schedule, and a failure prints it. The schedules in process are tests/simulation/gateway_journal.py.
"""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import runtimes
from tests.support.gateway_site import read_whole
from tests.support.journal_site import SimulatedJournald
from tests.support.ports import free_port
from tests.support.processes import EdgeBroker, Process, all_stopped, wait_until

SCHEDULES = 50
FEW = 3  # for each change; the night plays all
STEPS = 25


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EdgeBroker]:
    with EdgeBroker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


class Schedule:
    """One schedule's machines, gateway and topic."""

    def __init__(self, edge: EdgeBroker, directory: Path, seed: int) -> None:
        self.edge, self.chance, self.topic = edge, random.Random(seed), f"journal-{seed}"
        journal = directory / "journal"
        journal.mkdir(parents=True)
        config = directory / "g.toml"
        config.write_text(
            f'state_dir = "state"\nmetrics = "127.0.0.1:{free_port()}"\n'
            f'[kafka]\nbootstrap_servers = "{edge.bootstrap}"\n'
            f'[journal]\ntopic = "{self.topic}"\nstart = "beginning"\nsave_interval_ms = 0\ndirectory = "{journal}"\n'
        )
        command: list[str | Path] = [runtimes.console_script("edge-gateway"), "run", "--config", config]
        self.gateway = Process("gateway", command, directory, ready="edge-gateway ready")
        self.is_running = self.is_still = False
        self.machines = []
        for _ in range(self.chance.randint(1, 3)):
            machine = SimulatedJournald(journal, self.chance, self.chance.random() < 0.5)
            machine.jump(self.chance.uniform(-60, 60))
            self.machines.append(machine)

    def play(self) -> None:
        """Take all steps, and wait until every entry is accounted for."""
        self._start()
        for number in range(STEPS):
            self._step(number, self.chance.choice(self.machines))
        self._let_broker_go_on()
        if not self.is_running:
            self._start()
        wait_until(lambda: self._account() == "", 60, "every entry is accounted for", seen=self._account)
        self.gateway.stop()
        assert self._account() == ""

    def close(self) -> None:
        """Let the broker go on, and close the files."""
        self._let_broker_go_on()
        for machine in self.machines:
            machine.close()

    def _start(self) -> None:
        self._let_broker_go_on()
        self.gateway.start()
        self.is_running = True

    def _let_broker_go_on(self) -> None:
        assert self.edge.pid is not None
        os.kill(self.edge.pid, signal.SIGCONT)
        self.is_still = False

    def _step(self, number: int, machine: SimulatedJournald) -> None:
        names, weights = ["log", "rotate", "delete", "boot", "jump", "gateway", "broker"], [40, 10, 6, 4, 4, 10, 3]
        match self.chance.choices(names, weights)[0]:
            case "log":
                kind = self.chance.choice(("system", "system", "user-1000"))
                count = self.chance.choice((1, 5, 60))
                machine.log(*(f"{machine.machine_id[:8]} {number} {each}" for each in range(count)), kind=kind)
            case "rotate":
                machine.rotate()
            case "delete":
                machine.vacuum(self.chance.randint(0, 2))
            case "boot":
                machine.boot()
            case "jump":
                machine.jump(self.chance.uniform(-3_600, 3_600))
            case "gateway" if self.is_running:
                self.gateway.kill()
                self.is_running = False
            case "gateway":
                self._start()
            case "broker" if self.is_still:
                self._let_broker_go_on()
            case "broker":
                assert self.edge.pid is not None
                os.kill(self.edge.pid, signal.SIGSTOP)
                self.is_still = True

    def _account(self) -> str:
        """Return which entries are neither records nor ledgered, empty where all are."""
        written = {entry.message for machine in self.machines for entry in machine.written}
        records = {message.value() for message in read_whole(self.edge.bootstrap, self.topic)}
        ledger = {
            row["id"]: row["records"]
            for row in (json.loads(message.value()) for message in read_whole(self.edge.bootstrap, "__edge_ledger"))
            if row["topic"] == self.topic
        }
        missing, known = len(written - records), sum(count or 0 for count in ledger.values())
        is_unknown = None in ledger.values()
        if records <= written and (known == missing or (is_unknown and known < missing)):
            return ""
        return f"{len(written)} written, {missing} no records, {known} ledgered, an unknown number: {is_unknown}"


def play(edge: EdgeBroker, directory: Path, seed: int) -> None:
    schedule = Schedule(edge, directory / str(seed), seed)
    try:
        with all_stopped(schedule.gateway):
            try:
                schedule.play()
            except BaseException as error:
                error.add_note(f"seed {seed}")
                raise
    finally:
        schedule.close()


@pytest.mark.parametrize("seed", range(FEW))
def test_every_entry_is_accounted_for(edge: EdgeBroker, tmp_path: Path, seed: int) -> None:
    play(edge, tmp_path, seed)


@pytest.mark.night
@pytest.mark.timeout(3_600)
def test_every_entry_is_accounted_for_in_many_schedules(edge: EdgeBroker, tmp_path: Path) -> None:
    first = random.SystemRandom().randrange(1 << 32)
    for seed in range(first, first + SCHEDULES):
        play(edge, tmp_path, seed)
