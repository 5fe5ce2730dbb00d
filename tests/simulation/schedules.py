"""Schedules of a simulation, seed after seed, until one fails or the time is over: what both command lines do.

    --seconds 60            from a new seed on, which is printed
    --seed 17               that seed alone, and what it did
    --seed 17 --hours 8     from that seed on
    --seed 0 --schedules N

Must never come in: what a schedule does (mirror_runs.py, cluster_runs.py).
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Protocol


class Result(Protocol):
    """What came of one seed; `failure` is empty when everything held, `counts` are added up by their names."""

    @property
    def seed(self) -> int:
        """By which it is replayed."""

    @property
    def failure(self) -> str:
        """What did not hold."""

    @property
    def trace(self) -> Sequence[str]:
        """Its last lines."""

    @property
    def counts(self) -> Mapping[str, float]:
        """What it did, by the words for it."""


def parser(description: str | None) -> argparse.ArgumentParser:
    """The options that all have."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--seconds", type=float, default=60.0)
    made.add_argument("--hours", type=float, default=0.0)
    made.add_argument("--schedules", type=int, default=0)
    made.add_argument("--seed", type=int, default=-1)
    return made


def run(options: argparse.Namespace, play: Callable[[int], Result], target: str) -> int:
    """Run as the options say; the exit status. `target` is the one of make that replays a seed."""
    if options.seed >= 0 and not (options.hours or options.schedules):
        result = play(options.seed)
        _tell(result, target)
        return bool(result.failure)
    first = options.seed if options.seed >= 0 else random.SystemRandom().randrange(1 << 40)
    sys.stdout.write(f"from seed {first} on\n")
    seconds = options.hours * 3600 or (0.0 if options.schedules else options.seconds)
    began, sums = time.monotonic(), dict[str, float]()
    for done in count(1):
        result = play(first + done - 1)
        for name, number in result.counts.items():
            sums[name] = sums.get(name, 0) + number
        if result.failure:
            _tell(result, target)
            return 1
        if done == options.schedules or (seconds and time.monotonic() - began > seconds):
            break
    told = ", ".join(f"{round(number, 1)} {name}" for name, number in sums.items())
    sys.stdout.write(f"{done} schedules, {told}, {time.monotonic() - began:.0f} s\n")
    return 0


def _tell(result: Result, target: str) -> None:
    """Print what a seed did, and why it fails."""
    lines = "\n".join(f"  {line}" for line in result.trace)
    sys.stdout.write(f"{lines}\n{'FAILED ' if result.failure else ''}seed {result.seed}: {result.failure or 'well'}\n")
    if result.failure:
        sys.stdout.write(f"replay it alone: make {target} SEED={result.seed}\n")
