"""`make test-loaded`: the suites beside hogs, on a machine that is always busy with something else.

The hogs take what an everyday neighbour takes, at nice 0: some burn a core in bursts, some write and sync on the disk
of the tests. Their bursts come from one seed, which is printed; what the scheduler makes of them no seed repeats. A
probe says how much slower the machine is for it. Each suite runs once (tests/suites.py), then the fault tests, power
cuts among them, again and again; every run is made, also after one that failed, and the exit status says whether all
passed.

The hogs end with this process, however it ends, and by themselves after `HOG_S`.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.suites import SUITES
from tests.support.processes import Process

TIMES = 20
HOG_S = 12 * 3600
PROBES = 5
SYNC_BYTES = 1 << 20

_BURN = """
import random, sys, time
chance, end = random.Random(int(sys.argv[1])), time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    until = time.monotonic() + chance.uniform(0.05, 2)
    while time.monotonic() < until:
        sum(range(10_000))
    time.sleep(chance.uniform(0, 0.3))
"""
_SYNC = """
import os, random, sys, time
chance, end, size = random.Random(int(sys.argv[1])), time.monotonic() + float(sys.argv[2]), int(sys.argv[4])
file = os.open(sys.argv[3], os.O_RDWR | os.O_CREAT)
while time.monotonic() < end:
    os.pwrite(file, chance.randbytes(chance.randrange(1, size)), chance.randrange(16 * size))
    os.fsync(file)
    time.sleep(chance.uniform(0, 0.02))
"""
_PROBE = """
import os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for _ in range(20):
    sum(range(1_000_000))
    os.pwrite(file, bytes(4096), 0)
    os.fdatasync(file)
"""


@contextmanager
def hogs(directory: Path, seed: int, cpu: int, syncing: int) -> Iterator[None]:
    """Let so many processes burn cores and so many sync files beside the block."""
    chance = random.Random(seed)
    started: list[Process] = []
    try:
        for number in range(cpu + syncing):
            words = [str(chance.randrange(1 << 32)), str(HOG_S), str(directory / f"hog-{number}"), str(SYNC_BYTES)]
            command = [sys.executable, "-c", _BURN if number < cpu else _SYNC, *words]
            started.append(Process(f"hog-{number}", command, directory).start())
        yield
        for hog in started:
            hog.check()
    finally:
        for hog in started:
            hog.kill()


def probe_s(directory: Path) -> float:
    """Seconds that a fixed piece of computing and syncing takes now, two of them side by side; the median of some."""
    taken = []
    for _ in range(PROBES):
        begin = time.monotonic()
        both = [subprocess.Popen([sys.executable, "-c", _PROBE, directory / f"probe-{name}"]) for name in "ab"]
        for one in both:
            one.wait()
        taken.append(time.monotonic() - begin)
    return statistics.median(taken)


def runs_of(part: str, times: int) -> list[tuple[str, list[str]]]:
    """What is run, by name: the paths that pytest is given."""
    processes = dict.fromkeys(suite.folders for suite in SUITES if suite.folders)
    suite = [(" ".join(folders), list(folders)) for folders in processes] if part in {"suite", "all"} else []
    fault = [(f"fault tests, {number} of {times}", ["tests/fault"]) for number in range(1, times + 1)]
    return [*suite, *(fault if part in {"fault", "all"} else [])]


def main() -> int:
    """Run the tests beside the hogs."""
    cores = os.cpu_count() or 1
    parser = argparse.ArgumentParser(prog="make test-loaded", description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="of the hogs' bursts")
    parser.add_argument("--part", choices=("all", "suite", "fault"), default="all")
    parser.add_argument("--times", type=int, default=TIMES, help="runs of the fault tests")
    parser.add_argument("--burning", type=int, default=2 * cores, help="processes that burn cores (two per core)")
    parser.add_argument("--syncing", type=int, default=2, help="processes that write and sync (2)")
    options, for_pytest = parser.parse_known_args()
    results: list[str] = []
    failed = 0
    with tempfile.TemporaryDirectory(prefix="hogs-") as name:
        quiet_s = probe_s(Path(name))
        with hogs(Path(name), options.seed, options.burning, options.syncing):
            slower = probe_s(Path(name)) / quiet_s
            print(f"seed {options.seed}: {options.burning} hogs burn cores, {options.syncing} sync files", flush=True)
            print(f"a probe takes {slower:.1f} times as long as before ({quiet_s:.2f} s)", flush=True)
            for what, paths in runs_of(options.part, options.times):
                begin = time.monotonic()
                status = subprocess.run(
                    [sys.executable, "-m", "pytest", "-q", *paths, *for_pytest], check=False
                ).returncode
                failed += status != 0
                results.append(f"{what}: {'passed' if status == 0 else 'FAILED'} in {time.monotonic() - begin:.0f} s")
                print(f"### {results[-1]}", flush=True)
    print(*results, f"{len(results) - failed} runs passed, {failed} failed (seed {options.seed})", sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
