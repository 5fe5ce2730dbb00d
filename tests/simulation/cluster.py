"""Run many schedules of a whole cluster in virtual time, until one fails or the time is over.

    python -m tests.simulation.cluster --seconds 60          from a new seed on, which is printed
    python -m tests.simulation.cluster --seed 17             that seed alone, and what it did
    python -m tests.simulation.cluster --seed 17 --hours 8   from that seed on
    python -m tests.simulation.cluster --seed 0 --schedules 20000
    python -m tests.simulation.cluster --broken 'one step' --schedules 300   which seed finds a rule that is broken

Must never come in: what a schedule does (cluster_runs.py).
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from itertools import count

from tests.simulation.cluster_broken import BROKEN, break_rule
from tests.simulation.cluster_runs import Result, run_seed


def tell(result: Result) -> None:
    """Print what a seed did, and why it fails."""
    lines = "\n".join(f"  {line}" for line in result.trace)
    sys.stdout.write(f"{lines}\n{'FAILED ' if result.failure else ''}seed {result.seed}: {result.failure or 'well'}\n")
    if result.failure:
        sys.stdout.write(f"replay it alone: make cluster-simulate SEED={result.seed}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--hours", type=float, default=0.0)
    parser.add_argument("--schedules", type=int, default=0)
    parser.add_argument("--seed", type=int, default=-1)
    parser.add_argument("--broken", default="", help="a word of the rule that is broken on purpose")
    options = parser.parse_args(arguments)
    for rule in BROKEN:
        if options.broken and options.broken in rule:
            break_rule(rule, setattr)
    if options.seed >= 0 and not (options.hours or options.schedules):
        result = run_seed(options.seed)
        tell(result)
        return bool(result.failure)
    first = options.seed if options.seed >= 0 else random.SystemRandom().randrange(1 << 40)
    sys.stdout.write(f"from seed {first} on\n")
    return run_from(first, options.schedules, options.hours * 3600 or (0.0 if options.schedules else options.seconds))


def run_from(first: int, schedules: int, seconds: float) -> int:
    """Run until one fails, so many have run, or so long."""
    began, acts, taken, acked, virtual_ms = time.monotonic(), 0, 0, 0, 0.0
    for done in count(1):
        result = run_seed(first + done - 1)
        acts, taken, acked = acts + result.acts, taken + result.taken, acked + result.acked
        virtual_ms += result.virtual_ms
        if result.failure:
            tell(result)
            return 1
        if done == schedules or (seconds and time.monotonic() - began > seconds):
            break
    sys.stdout.write(
        f"{done} schedules, {acts} acts, {taken} records taken, {acked} acked by all, {virtual_ms / 3.6e6:.1f} h of "
        f"virtual time, {time.monotonic() - began:.0f} s\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
