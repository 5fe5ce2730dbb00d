"""Run many schedules of the mirror between two ends in memory, until one fails or the time is over.

    python -m tests.simulation.mirror --seconds 60          from a new seed on, which is printed
    python -m tests.simulation.mirror --seed 17             that seed alone, and what it did
    python -m tests.simulation.mirror --seed 17 --hours 8   from that seed on
    python -m tests.simulation.mirror --seed 0 --schedules 10000

Must never come in: what a schedule does (mirror_runs.py).
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from itertools import count

from tests.simulation.mirror_runs import Result, run_seed


def tell(result: Result) -> None:
    """Print what a seed did, and why it fails."""
    lines = "\n".join(f"  {line}" for line in result.trace)
    sys.stdout.write(f"{lines}\n{'FAILED ' if result.failure else ''}seed {result.seed}: {result.failure or 'well'}\n")
    if result.failure:
        sys.stdout.write(f"replay it alone: make simulate-mirror SEED={result.seed}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--hours", type=float, default=0.0)
    parser.add_argument("--schedules", type=int, default=0)
    parser.add_argument("--seed", type=int, default=-1)
    parser.add_argument("--hard", action="store_true", help="with acts of which some schedules are known to fail")
    options = parser.parse_args(arguments)
    if options.seed >= 0 and not (options.hours or options.schedules):
        result = run_seed(options.seed, hard=options.hard)
        tell(result)
        return bool(result.failure)
    first = options.seed if options.seed >= 0 else random.SystemRandom().randrange(1 << 40)
    sys.stdout.write(f"from seed {first} on\n")
    seconds = options.hours * 3600 or (0.0 if options.schedules else options.seconds)
    began, acts, records = time.monotonic(), 0, 0
    for done in count(1):
        result = run_seed(first + done - 1, hard=options.hard)
        acts, records = acts + result.acts, records + result.records
        if result.failure:
            tell(result)
            return 1
        if done == options.schedules or (seconds and time.monotonic() - began > seconds):
            break
    sys.stdout.write(f"{done} schedules, {acts} acts, {records} records, {time.monotonic() - began:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
