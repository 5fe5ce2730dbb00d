"""Schedules of a simulation, seed after seed, until one fails or the time is over: what both command lines do.

    --seconds 60            from a new seed on, which is printed
    --seed 17               that seed alone, and what it did
    --seed 17 --hours 8     from that seed on
    --seed 0 --schedules N
    --processes 2           so many schedules at once; what is printed is the same
    --go-on                 not only until one fails: say which do, and why, without what they did

Must never come in: what a schedule does (mirror_runs.py, cluster_runs.py).
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import closing
from itertools import count
from typing import Protocol

AHEAD = 4  # seeds begun for each process before the oldest is through: some take ten times as long as others


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
    made.add_argument("--processes", type=int, default=1)
    made.add_argument("--go-on", action="store_true")
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
    began, sums, done, failed = time.monotonic(), dict[str, float](), 0, 0
    with closing(_results(play, first, options.schedules, options.processes)) as results:
        for result in results:
            done += 1
            for name, number in result.counts.items():
                sums[name] = sums.get(name, 0) + number
            if result.failure and not options.go_on:
                _tell(result, target)
                return 1
            if result.failure:
                failed += 1
                _tell_failure(result, target)
            if seconds and time.monotonic() - began > seconds:
                break
    told = ", ".join(f"{round(number, 1)} {name}" for name, number in sums.items())
    failures = f", {failed} failed" if failed else ""
    sys.stdout.write(f"{done} schedules{failures}, {told}, {time.monotonic() - began:.0f} s\n")
    return bool(failed)


def _results(
    play: Callable[[int], Result], first: int, schedules: int, processes: int
) -> Generator[Result, None, None]:
    """What comes of each seed from the first on, in their order; without end where `schedules` is 0."""
    seeds = iter(range(first, first + schedules)) if schedules else count(first)
    if processes < 2:
        yield from map(play, seeds)
        return
    # forked, so that a rule that is broken on purpose is broken there, too
    with ProcessPoolExecutor(processes, multiprocessing.get_context("fork")) as pool:
        under_way = deque[Future[Result]]()
        try:
            for seed in seeds:
                under_way.append(pool.submit(play, seed))
                if len(under_way) > processes * AHEAD:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def _tell(result: Result, target: str) -> None:
    """Print what a seed did, and why it fails."""
    lines = "\n".join(f"  {line}" for line in result.trace)
    sys.stdout.write(f"{lines}\n")
    if result.failure:
        _tell_failure(result, target)
    else:
        sys.stdout.write(f"seed {result.seed}: well\n")


def _tell_failure(result: Result, target: str) -> None:
    sys.stdout.write(f"FAILED seed {result.seed}: {result.failure}\n")
    sys.stdout.write(f"replay it alone: make {target} SEED={result.seed}\n")
    sys.stdout.flush()
