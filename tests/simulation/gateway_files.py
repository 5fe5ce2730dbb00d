"""Random rotations, stops and disagreeing clocks against the reader of log files, under one seed.

    python -m tests.simulation.gateway_files --schedules 2000
    python -m tests.simulation.gateway_files --seed 4711          # that schedule alone, step by step

Each schedule has one rotating tool, as a host has. Invariants, once the reader has come to rest:
- every line that was written is a line that was read, or part of what is ledgered;
- every line whose file still exists is read, whatever is ledgered;
- nothing is ledgered where no act of the schedule could lose anything;
- a line comes twice only after a kill, and never when its position had been saved.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

from gateway.sources.file_reading.places import FamilyState, Item, Line, UnreadRest, from_json, to_json
from gateway.sources.files.tail import Tail
from tests.simulation.rotating_tools import TOOLS, RotatingTool

STEPS_MAX = 30
LINE_BYTES_MAX = 1_000
QUIET_S = 1  # the clock counts the reads that find nothing
QUIET_READS = 8  # more than a file is waited for, or missed
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


class Broken(AssertionError):
    """An invariant does not hold."""


class Program:
    """What writes lines and has its file rotated; its clock may jump."""

    def __init__(self, chance: random.Random, directory: Path, tools: Sequence[type[RotatingTool]] = TOOLS) -> None:
        self.chance = chance
        self.tool: RotatingTool = chance.choice(tools)(chance, directory)
        self.written: dict[bytes, None] = {}
        self._clock_s = 1_795_000_000.0
        self._partial = b""
        self._has_clock_jumps = chance.random() < 0.5

    def write(self) -> None:
        """Write some lines, and maybe the beginning of one."""
        self._pass_time()
        for _ in range(self.chance.randint(1, 12)):
            self._append(self._line() + b"\n")
            self._complete()
        if self.chance.random() < 0.2:
            self._append(self._line())

    def rotate(self) -> None:
        """Let the tool rotate the file; a line that is not finished ends with it."""
        self._pass_time()
        if not self.tool.path.exists():
            return
        with self.tool.path.open("ab") as before:
            if not self.tool.rotate(self._clock_s):
                return
            if not self.tool.keeps_inode and self.tool.leaves_last and self.chance.random() < 0.3:
                line = self._line() + b"\n"  # the program has not reopened its file yet
                before.write(line)
                self._partial += line
            self._complete()

    def _pass_time(self) -> None:
        self._clock_s += self.chance.random() * 100
        if self._has_clock_jumps and self.chance.random() < 0.1:
            self._clock_s = self.chance.uniform(0, 2_000_000_000)

    def _line(self) -> bytes:
        return b"%d %s" % (len(self.written) + self.chance.randint(0, 1 << 40), b"x" * self.chance.randint(0, 40))

    def _append(self, content: bytes) -> None:
        self._partial += content
        self.tool.append(content, self._clock_s)

    def _complete(self) -> None:
        if line := self._partial.removesuffix(b"\n"):
            self.written[line] = None
        self._partial = b""


class Reader:
    """The gateway's reading of one path, with acknowledgements, saves, kills and stops."""

    def __init__(self, tool: RotatingTool) -> None:
        self._tool = tool
        self.read: dict[bytes, int] = {}
        self.lost: dict[object, int | None] = {}
        self.killed = False
        self._saved: FamilyState | None = None
        self._saved_lines: set[bytes] = set()
        self._pending: list[Item] = []
        self._since_start: set[bytes] = set()
        self.tail = self._start()

    def _start(self) -> Tail:
        rotated = self._tool.rotated
        return Tail(
            self._tool.path,
            self._saved,
            line_bytes_max=LINE_BYTES_MAX,
            quiet_s=QUIET_S,
            clock=count().__next__,
            rotated=None if rotated is None else str(rotated),
        )

    def step(self) -> int:
        """Read once; return how many items came."""
        items = self.tail.read()
        for item in items:
            if isinstance(item, Line):
                self._take(item.text)
            elif isinstance(item, UnreadRest):
                self.lost[item.kind, item.place] = item.bytes  # as the id of `FileSource`'s losses
            else:
                raise Broken(f"a line that is too long: {item}")
        self._pending += items
        if not items and not self._pending and self.tail.state is not None:
            self._saved = from_json(to_json(self.tail.state))  # as `FileSource` saves what files there are
        return len(items)

    def _take(self, text: bytes) -> None:
        if text in self._since_start:
            raise Broken(f"{text!r} was read twice without a kill")
        if text in self._saved_lines:
            raise Broken(f"{text!r} was read again, although its position was saved")
        self._since_start.add(text)
        self.read[text] = self.read.get(text, 0) + 1

    def acknowledge(self, count: int) -> None:
        """Let the broker acknowledge the first of what waits, and save the position."""
        done, self._pending = self._pending[:count], self._pending[count:]
        lines = [item for item in done if isinstance(item, Line)]
        self._saved_lines.update(line.text for line in lines)
        if lines:
            self._saved = from_json(to_json(lines[-1].after))

    @property
    def waiting(self) -> int:
        """How many items wait for the broker."""
        return len(self._pending)

    def kill(self) -> None:
        """End without saving; `start` goes on from what was saved."""
        self.tail.close()
        self._pending = []
        self._since_start = set()
        self.killed = True

    def start(self) -> None:
        """Start again."""
        self.tail = self._start()


class Schedule:
    """One random schedule, and the check of what it led to."""

    def __init__(self, seed: int, directory: Path, say: Callable[[str], None] = lambda _text: None) -> None:
        self._chance = random.Random(seed)
        self._say = say
        self.program = Program(self._chance, directory)
        self.reader = Reader(self.program.tool)
        self._may_lose = False

    def run(self) -> None:
        """Run to the end and check; raises Broken."""
        self._say(f"tool {self.program.tool}")
        self.program.write()
        self._act("first look", self.reader.step)
        self.reader.acknowledge(self.reader.waiting)
        acts = {"write": 5, "rotate": 4, "read": 5, "look": 1, "acknowledge": 3, "stop": 1}
        for _ in range(self._chance.randint(5, STEPS_MAX)):
            (name,) = self._chance.choices(list(acts), list(acts.values()))
            self._act(name, getattr(self, f"_{name}"))
        self._come_to_rest()
        self._check()

    def _act(self, name: str, act: Callable[[], object]) -> None:
        self._say(f"{name}: {act()}")

    def _write(self) -> None:
        self.program.write()

    def _rotate(self) -> int:
        times = self._chance.choice((1, 1, 1, 2, 4))
        for _ in range(times):
            self.program.rotate()
            if self._chance.random() < 0.8:
                self.program.write()
        return times

    def _read(self) -> int:
        return sum(self.reader.step() for _ in range(self._chance.randint(1, 6)))

    def _look(self) -> None:
        self.reader.tail.find_files()

    def _acknowledge(self) -> int:
        count = self._chance.randint(0, self.reader.waiting)
        self.reader.acknowledge(count)
        return count

    def _stop(self) -> str:
        """Stop or kill, let the program go on, and start again."""
        self.reader.kill()
        for _ in range(self._chance.randint(0, 4)):
            if self._chance.random() < 0.5:
                self._rotate()
            else:
                self.program.write()
        self.reader.start()
        return "started again"

    def _come_to_rest(self) -> None:
        self.program.tool.append(b"", 0.0)  # a rotated file's unfinished line is taken once there is a next file
        quiet = 0
        while quiet < QUIET_READS:
            self.reader.tail._family._whole_looks_due += quiet % 2 == 0
            quiet = 0 if self.reader.step() else quiet + 1
            self.reader.acknowledge(self.reader.waiting)
        self._say(f"at rest: {len(self.reader.read)} lines, lost {list(self.reader.lost.values())}")

    def _check(self) -> None:
        missing = [line for line in self.program.written if line not in self.reader.read]
        strange = [line for line in self.reader.read if line not in self.program.written]
        lost = list(self.reader.lost.values())
        partial = self.program._partial
        strange = [line for line in strange if line != partial]
        if strange:
            raise Broken(f"{strange[:3]} were never written")
        kept = self.program.tool.lines_kept()
        if unread := [line for line in missing if line in kept]:
            raise Broken(f"{len(unread)} lines are not read, such as {unread[0]!r}, though their files exist")
        missing_bytes = sum(len(line) + 1 for line in missing)
        if missing and None not in lost and missing_bytes > sum(size or 0 for size in lost) + len(lost):
            raise Broken(f"{len(missing)} lines are missing, such as {missing[0]!r}; ledgered: {lost}")
        if lost and not self.program.tool.can_lose:
            raise Broken(f"ledgered {lost}, and nothing could be lost")


def run_schedule(seed: int, say: Callable[[str], None] = lambda _text: None) -> None:
    """Run the schedule of that seed; raises Broken."""
    directory = Path(tempfile.mkdtemp(prefix="gateway-files-", dir=MEMORY))
    schedule = Schedule(seed, directory, say)
    try:
        schedule.run()
    finally:
        schedule.reader.tail.close()
        shutil.rmtree(directory)


def run_schedules(first: int, count: int) -> None:
    """Run that many schedules; raises Broken, which names the seed."""
    for seed in range(first, first + count):
        try:
            run_schedule(seed)
        except Exception as error:
            raise Broken(f"seed {seed}: {error} (python -m tests.simulation.gateway_files --seed {seed})") from error


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=2_000)
    parser.add_argument("--first", type=int, help="the first seed; default: a new one")
    parser.add_argument("--seed", type=int, help="that schedule alone, step by step")
    options = parser.parse_args()
    if options.seed is not None:
        run_schedule(options.seed, print)
        return 0
    first = time.time_ns() % (1 << 40) if options.first is None else options.first
    began_s = time.monotonic()
    run_schedules(first, options.schedules)
    print(f"{options.schedules} schedules from seed {first} on in {time.monotonic() - began_s:.0f} s: all hold")
    return 0


if __name__ == "__main__":
    sys.exit(main())
