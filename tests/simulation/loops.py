"""Run many schedules of several sites and the mirrors between them, until one fails or the time is over.

    python -m tests.simulation.loops --seconds 60     from a new seed on, which is printed
    python -m tests.simulation.loops --seed 17        that seed alone, and what it did

Does not contain: what a schedule does (loops_runs.py).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tests.simulation import schedules
from tests.simulation.loops_runs import run_seed


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run."""
    return schedules.run(schedules.parser(__doc__).parse_args(arguments), run_seed, "simulate-loops")


if __name__ == "__main__":
    sys.exit(main())
