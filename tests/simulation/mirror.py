"""Run many schedules of the mirror between two ends in memory, until one fails or the time is over.

    python -m tests.simulation.mirror --seconds 60          from a new seed on, which is printed
    python -m tests.simulation.mirror --seed 17             that seed alone, and what it did
    python -m tests.simulation.mirror --seed 17 --hours 8   from that seed on
    python -m tests.simulation.mirror --seed 0 --schedules 10000

Must never come in: what a schedule does (mirror_runs.py).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial

from tests.simulation import schedules
from tests.simulation.mirror_runs import run_seed


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run."""
    parser = schedules.parser(__doc__)
    parser.add_argument("--hard", action="store_true", help="with acts of which some schedules are known to fail")
    options = parser.parse_args(arguments)
    return schedules.run(options, partial(run_seed, hard=options.hard), "simulate-mirror")


if __name__ == "__main__":
    sys.exit(main())
