"""Run many programs and count the crash points that the store, or a whole broker, came back from.

    python -m tests.simulation.crash --points 100000        seeds 0, 1, 2, … until so many points are passed
    python -m tests.simulation.crash --seed 17              that seed alone; what it did, and the shortest way there
    python -m tests.simulation.crash --hours 8 --seed 17    from that seed on for so long; without hours, for ever

| seed modulo 8 | program |
|---|---|
| 0, 1 | a short one of the store alone, with a crash at every single step of the disk (program.py) |
| 2 to 6 | a long one of the store alone, with crashes at some |
| 7 | clients, loop, workers and cuts in any order, over a whole broker (interleaving.py) |

Half of the programs have names that are lost freely, the others a journal. Two processes share the work.

Lives here: how many, how long, and what is told of a failure. Must never come in: what a program does (program.py).
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tests.simulation.interleaving import Interleaving
from tests.simulation.program import STEPS, Program
from tests.simulation.site import Deviation

PROCESSES = 2
POINTS_MIN = 20_000
INTERLEAVED = 7  # of 8
SHORT_STEPS = 14
LONG_BRANCH_RATE = 0.1
SHRINK_S = 30.0
SEED_S_MAX = 180  # most take a second
TOLD_EVERY_S = 5.0


class Result(NamedTuple):
    """What came of one seed; `failure` is empty when everything held."""

    seed: int
    points: int
    exhaustive: bool
    failure: str
    trace: Sequence[str]


def is_exhaustive(seed: int) -> bool:
    """True for a short program that branches at every step."""
    return seed % 8 in (0, 1)


def new_program(seed: int) -> tuple[Program | Interleaving, list[int]]:
    """A seed's program and its steps."""
    if seed % 8 == INTERLEAVED:
        interleaving = Interleaving(seed, ordered=bool(seed & 8))
        return interleaving, interleaving.plan()
    exhaustive = is_exhaustive(seed)
    program = Program(seed, ordered=bool(seed & 1), branch_rate=1.0 if exhaustive else LONG_BRANCH_RATE)
    return program, program.plan(SHORT_STEPS if exhaustive else STEPS)


def run_seed(seed: int, plan: Sequence[int] | None = None) -> Result:
    """Run a seed's program, or only some of its steps."""
    program, whole = new_program(seed)

    def too_long(*_: object) -> None:
        raise Deviation(f"it does not end within {SEED_S_MAX} s", program.trace)

    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(SEED_S_MAX)
    try:
        program.run(whole if plan is None else plan)
    except Deviation as deviation:
        return Result(seed, program.crashes[0], is_exhaustive(seed), str(deviation), deviation.trace)
    finally:
        signal.alarm(0)
    return Result(seed, program.crashes[0], is_exhaustive(seed), "", ())


def shrink(seed: int) -> tuple[Result, int]:
    """Leave out steps as long as it still fails; the last failure and how many steps are left."""
    plan = new_program(seed)[1]
    failed = run_seed(seed)
    deadline = time.monotonic() + SHRINK_S
    size = len(plan) // 2
    while size:
        at = 0
        while at < len(plan) and time.monotonic() < deadline:
            shorter = plan[:at] + plan[at + size :]
            result = run_seed(seed, shorter)
            if result.failure:
                plan, failed = shorter, result
            else:
                at += size
        size //= 2
    return failed, len(plan)


def tell(result: Result) -> None:
    """Print a failure and the shortest program found that fails."""
    sys.stdout.write(f"\nFAILED seed {result.seed}: {result.failure}\nlooking for a shorter way there …\n")
    failed, steps = shrink(result.seed)
    lines = "\n".join(f"  {line}" for line in failed.trace)
    sys.stdout.write(f"with {steps} steps: {failed.failure}\n{lines}\n")
    sys.stdout.write(f"replay it alone: make simulate SEED={result.seed}\n")


def run_many(seeds: Iterator[int], points: int, seconds: float, processes: int) -> int:
    """Run seeds until so many points are passed or so much time has (0: no end); the exit code."""
    begin = told = time.monotonic()
    passed = programs = exhaustive = last = 0
    context = multiprocessing.get_context("fork")
    with context.Pool(processes) as pool:
        for result in pool.imap_unordered(run_seed, seeds):
            passed, programs, last = passed + result.points, programs + 1, max(last, result.seed)
            exhaustive += result.points if result.exhaustive else 0
            now = time.monotonic()
            if result.failure:
                pool.terminate()
                tell(result)
                return 1
            if now - told >= TOLD_EVERY_S:
                told = now
                sys.stdout.write(f"{now - begin:6.0f} s  {passed} crash points, {programs} programs, seed {last}\n")
                sys.stdout.flush()
            if (seconds and now - begin > seconds) or (points and passed >= points):
                break
        pool.terminate()
    sys.stdout.write(
        f"{passed} crash points passed ({exhaustive} of them at every step of short programs), {programs} programs, "
        f"seeds up to {last}, {time.monotonic() - begin:.0f} s\n"
    )
    if points and passed < min(points, POINTS_MIN):
        sys.stdout.write(f"FAILED: fewer than {POINTS_MIN} crash points in {seconds:.0f} s\n")
        return 1
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=0, help="stop after so many crash points")
    parser.add_argument("--seconds", type=float, default=0.0, help=f"stop then; fail below {POINTS_MIN} points")
    parser.add_argument("--hours", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=-1)
    parser.add_argument("--processes", type=int, default=PROCESSES)
    options = parser.parse_args(arguments)
    if options.points:
        return run_many(itertools.count(max(options.seed, 0)), options.points, options.seconds, options.processes)
    if options.seed >= 0 and not options.hours:
        result = run_seed(options.seed)
        if result.failure:
            tell(result)
            return 1
        sys.stdout.write(f"seed {options.seed}: {result.points} crash points passed\n")
        return 0
    first = options.seed if options.seed >= 0 else random.SystemRandom().randrange(1 << 40)
    sys.stdout.write(f"from seed {first} on\n")
    return run_many(itertools.count(first), 0, options.hours * 3600, options.processes)


if __name__ == "__main__":
    sys.exit(main())
