"""Run many schedules of a whole cluster in virtual time, until one fails or the time is over.

    python -m tests.simulation.cluster --seconds 60          from a new seed on, which is printed
    python -m tests.simulation.cluster --seed 17             that seed alone, and what it did
    python -m tests.simulation.cluster --seed 17 --hours 8   from that seed on
    python -m tests.simulation.cluster --seed 0 --schedules 20000
    python -m tests.simulation.cluster --broken 'one step' --schedules 300   which seed finds a rule that is broken
    python -m tests.simulation.cluster --simple              on disks that know records alone, three times as many

It takes all processors that there are, `--processes 1` one.

A seed has the broker's own storage on its boards (cluster_storage.py), unless `--simple` disks are asked for.

Must never come in: what a schedule does (cluster_runs.py).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial

from tests.simulation import schedules
from tests.simulation.cluster_broken import BROKEN, BROKEN_DELETIONS, BROKEN_STORAGE, BROKEN_TOPICS, break_rule
from tests.simulation.cluster_runs import run_seed


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run."""
    parser = schedules.parser(__doc__)
    parser.set_defaults(processes=len(os.sched_getaffinity(0)))
    parser.add_argument("--broken", default="", help="a word of the rule that is broken on purpose")
    parser.add_argument("--simple", action="store_true", help="on disks that only tell written from synced")
    options = parser.parse_args(arguments)
    for rule in (*BROKEN, *BROKEN_TOPICS, *BROKEN_DELETIONS, *BROKEN_STORAGE):
        if options.broken and options.broken in rule:
            break_rule(rule, setattr)
    return schedules.run(options, partial(run_seed, real=not options.simple), "cluster-simulate")


if __name__ == "__main__":
    sys.exit(main())
