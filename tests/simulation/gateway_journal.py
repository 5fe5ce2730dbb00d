"""Random schedules of journals and a gateway: every entry written is a record or is counted in the ledger.

| actor | steps |
|---|---|
| machine, one to four, clocks apart | log to a system's or user's file, rotate, vacuum, boot, flush, set the clock |
| gateway | read, read until it finds nothing, save what the broker has acknowledged, be killed, stay stopped |
| broker | acknowledge all, some, or nothing |

The files are real, and `JournalReader` reads them with a clock of the schedule. Usage, one seed replays one schedule:
    python -m tests.simulation.gateway_journal --schedules 2000 --seed 1
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from gateway.systemd_journal.directory import Directories, Root
from gateway.systemd_journal.positions import EntriesLost, EntryRead, Event, Position
from gateway.systemd_journal.reader import JournalReader
from gateway.systemd_journal.selection import Selection
from tests.support.journal_site import SimulatedJournald

STEP_S = 0.3
SETTLED_STEPS = 12
QUIET_SHARE = 0.5  # of the schedules in which the gateway reads until it finds nothing
QUIET_CHANCE = 0.08  # for each step of such a schedule
MakeReader = Callable[..., JournalReader]


class ScheduleError(AssertionError):
    """A schedule in which an entry is neither a record nor ledgered, or comes twice."""


@dataclass(slots=True)
class SimulatedGateway:
    """A reader, what the broker has not acknowledged, and the state file."""

    roots: list[Root]
    make: MakeReader
    now_s: float = 0.0
    saved: dict[str, Position] | None = None
    reader: JournalReader | None = None
    pending: deque[Event] = field(default_factory=deque)
    records: Counter[bytes] = field(default_factory=Counter)
    saved_chains: set[str] = field(default_factory=set)  # of which a position was ever saved
    seen_chains: set[str] = field(default_factory=set)  # of which this reader found a file
    losses: dict[tuple[object, ...], EntriesLost] = field(default_factory=dict)

    def start(self) -> None:
        if self.reader is None:
            self.reader = self.make(Directories(self.roots), Selection((), None), self.saved, lambda: self.now_s)
            if self.saved is None:
                self.saved = self.reader.start(at_end=False)
            self.saved_chains.update(self.saved)

    def kill(self) -> None:
        if self.reader is not None:
            self.reader.close()
        self.reader = None
        self.pending.clear()
        self.seen_chains.clear()

    def read(self) -> bool:
        self.now_s += STEP_S
        if self.reader is None:
            return False
        events = self.reader.next_events()
        self.seen_chains.update(self.reader._scan.chains)
        self.pending.extend(events)
        return bool(events)

    def read_until_quiet(self) -> None:
        """Start, and read and have acknowledged until nothing more is found."""
        self.start()
        quiet = 0
        while quiet < SETTLED_STEPS:
            quiet = 0 if self.read() else quiet + 1
            self.acknowledge(len(self.pending))

    def acknowledge(self, count: int) -> None:
        for _ in range(min(count, len(self.pending))):
            event = self.pending.popleft()
            assert self.saved is not None
            self.saved_chains.add(event.chain)
            if event.position is None:
                self.saved.pop(event.chain, None)
            else:
                self.saved[event.chain] = event.position
            if isinstance(event, EntryRead):
                value = event.fields["MESSAGE"][0]
                assert isinstance(value, bytes)
                self.records[value] += 1
            elif isinstance(event, EntriesLost):
                self.losses[event.id_parts] = event


def run_schedule(
    seed: int, directory: Path, make: MakeReader = JournalReader, *, steps: int = 60, quiet_share: float = QUIET_SHARE
) -> None:
    """Run one schedule, with a quiet gateway in between in `quiet_share` of them; raises ScheduleError."""
    chance, quiet = random.Random(seed), random.Random(f"quiet {seed}")
    quiet_chance = QUIET_CHANCE if quiet.random() < quiet_share else 0.0
    volatile = chance.random() < 0.3
    var, run = directory / "var", directory / "run"
    var.mkdir(parents=True)
    run.mkdir()
    with ExitStack() as files:  # a schedule that fails closes them, too
        machines = []
        for _ in range(1 if volatile else chance.randint(1, 4)):
            machine = SimulatedJournald(var, chance, chance.random() < 0.5, run=run if volatile else None)
            files.callback(machine.close)
            machine.jump(chance.uniform(-60, 60))
            machines.append(machine)
        roots = [Root(var, "var"), *([Root(run, "run", is_volatile=True)] if volatile else [])]
        gateway = SimulatedGateway(roots, make)
        files.callback(gateway.kill)
        gateway.start()
        for number in range(steps):
            _step(chance, number, chance.choice(machines), gateway, volatile=volatile)
            if quiet.random() < quiet_chance:
                _check_at_rest(seed, machines, gateway)
        _check_at_rest(seed, machines, gateway)


def _check_at_rest(seed: int, machines: list[SimulatedJournald], gateway: SimulatedGateway) -> None:
    for machine in machines:
        machine.write_to_all()
    gateway.read_until_quiet()
    _check(seed, machines, gateway)


def _step(
    chance: random.Random, number: int, machine: SimulatedJournald, gateway: SimulatedGateway, *, volatile: bool
) -> None:
    match chance.choices(
        ["log", "rotate", "vacuum", "boot", "crash", "jump", "read", "ack", "kill", "start", "flush"],
        [30, 6, 4, 1, 1, 2, 25, 15, 3, 5, 2],
    )[0]:
        case "log":
            kind = "system" if volatile or chance.random() < 0.7 else f"user-{chance.choice((1000, 1001))}"
            count = chance.choice((1, 2, 5, 40))
            machine.log(*(f"{machine.machine_id[:8]} {number} {each}" for each in range(count)), kind=kind)
        case "rotate":
            machine.rotate()
        case "vacuum":
            machine.vacuum(chance.randint(0, 2))
        case "boot":
            machine.boot()
        case "crash":
            machine.boot(clean=False)
        case "jump":
            machine.jump(chance.uniform(-20, 20))
        case "flush":
            machine.flush()
        case "read":
            gateway.read()
        case "ack":
            gateway.acknowledge(chance.choice((1, 5, 100_000)))
        case "kill":
            gateway.kill()
        case "start":
            gateway.start()


def _check(seed: int, machines: list[SimulatedJournald], gateway: SimulatedGateway) -> None:
    """Check that each entry that a file holds is a record, once, and that the ledger counts the others.

    The ledger is empty as long as no file is deleted and no machine boots: a boot may use sequence numbers again.
    """
    known_chains = gateway.saved_chains | gateway.seen_chains
    # a chain that came and went while no reader looked shows nowhere
    written = [
        entry.message
        for machine in machines
        for entry in machine.written
        if entry.chains & known_chains or gateway.records[entry.message]
    ]
    missing = [message for message in written if not gateway.records[message]]
    twice = [message for message, count in gateway.records.items() if count > 1]
    known = sum(loss.count for loss in gateway.losses.values() if loss.count is not None)
    unknown = sum(loss.count is None for loss in gateway.losses.values())
    if twice:
        raise ScheduleError(f"seed {seed}: {len(twice)} entries come twice, the first is {twice[0]!r}")
    unread = [
        entry.message
        for machine in machines
        for entry in machine.written
        if entry.file_count and not gateway.records[entry.message]
    ]
    if unread:
        raise ScheduleError(f"seed {seed}: {len(unread)} entries in files are no records, the first is {unread[0]!r}")
    if gateway.losses and not any(machine.has_deleted or machine.has_booted for machine in machines):
        raise ScheduleError(f"seed {seed}: nothing was deleted, and losses are ledgered: {list(gateway.losses)}")
    if known > len(missing) or (known < len(missing) and not unknown):
        losses = "; ".join(loss.reason for loss in gateway.losses.values())
        raise ScheduleError(
            f"seed {seed}: {len(written)} written, {len(missing)} missing (first {missing[:1]}), {known} ledgered,"
            f" {unknown} times an unknown number ({losses})"
        )


def main() -> int:
    """Run schedules from a seed on; print one line, or the seed that fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    first = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    began_s = time.monotonic()
    for seed in range(first, first + options.schedules):
        with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as directory:
            try:
                run_schedule(seed, Path(directory))
            except ScheduleError as error:
                print(error)
                return 1
    took_s = time.monotonic() - began_s
    print(f"{options.schedules} schedules from seed {first}: all entries accounted for in {took_s:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
