"""Turns at the loop: work that takes longer than AT_ONCE_S is cut into pieces, with everybody else between them.

| job | runs |
|---|---|
| short, and there is memory for it | at once, to its end |
| longer than AT_ONCE_S | a piece of PIECE_S per turn of the loop; of all jobs the one whose connection has used least |
| beyond WORK_BYTES_MAX with others that have begun | when it is the oldest of them, or enough others ended |

Contains: whose turn it is. Does not contain: what the work is (dispatcher), threads.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator
from typing import Protocol

AT_ONCE_S = 0.005
PIECE_S = 0.004
STEPS_MAX = 2000  # of a piece, where the clock stands still
WORK_BYTES_MAX = 8 << 20


class Requester(Protocol):
    """Whose request it is; `work_seconds` is what its requests took of the loop in slices."""

    work_seconds: float


class Job:
    """A request of the API `name` that is worked on slice by slice; each step yields the bytes of memory that it holds
    by then.
    """

    __slots__ = ("bytes_held", "name", "steps", "whose")

    def __init__(self, name: str, whose: Requester, steps: Generator[int, None, None], bytes_least: int) -> None:
        self.name = name
        self.whose = whose
        self.steps = steps
        self.bytes_held = bytes_least


class FairScheduler:
    """All jobs; owned by the loop. `seconds` is the loop's CPU time, `may_begin` says whether one more may be begun."""

    def __init__(
        self,
        soon: Callable[[Callable[[], None]], object],
        seconds: Callable[[], float],
        may_begin: Callable[[], bool],
    ) -> None:
        self._soon = soon
        self._seconds = seconds
        self._may_begin = may_begin
        self._begun: list[Job] = []
        self._waiting: list[tuple[float, int, Job]] = []
        self._count = 0
        self._due = False
        self.pieces = 0
        self.longest_s: dict[str, float] = {}  # by the name of the API

    def __len__(self) -> int:
        """Jobs that have not ended."""
        return len(self._begun) + len(self._waiting)

    def run(self, job: Job) -> bool:
        """Take steps of a job at once; True when it has ended, else it goes on in its turn."""
        used = job.whose.work_seconds
        if self._piece(job, AT_ONCE_S):
            job.whose.work_seconds = used  # what is short is not counted
            return True
        self._begun.append(job)
        self._turn_soon()
        return False

    def begin(self, job: Job) -> None:
        """Take steps of a job at once if there is memory for one more, else in its turn."""
        if (self._begun and self._held_bytes() + job.bytes_held > WORK_BYTES_MAX) or not self._may_begin():
            self.add(job)
        else:
            self.run(job)

    def add(self, job: Job) -> None:
        """Begin a job in its turn."""
        self._count += 1
        heapq.heappush(self._waiting, (job.whose.work_seconds, self._count, job))
        self._turn_soon()

    def resume(self) -> None:
        """Let blocked jobs begin, as the cause has ended."""
        if self._waiting or self._begun:
            self._turn_soon()

    def _held_bytes(self) -> int:
        return sum(job.bytes_held for job in self._begun)

    def _turn_soon(self) -> None:
        if not self._due:
            self._due = True
            self._soon(self._turn)

    def _turn(self) -> None:
        self._due = False
        job = self._next()
        if job is None:
            return
        if self._piece(job, PIECE_S):
            self._begun.remove(job)
        if self._begun or self._waiting:
            self._turn_soon()

    def _next(self) -> Job | None:
        """The job whose connection used least, among those that find memory; the oldest always does."""
        held = self._held_bytes()
        able = self._begun if held <= WORK_BYTES_MAX else self._begun[:1]
        best = min(able, key=lambda job: job.whose.work_seconds, default=None)
        if self._waiting:
            used, _, job = self._waiting[0]
            fits = not self._begun or held + job.bytes_held <= WORK_BYTES_MAX
            if fits and (best is None or used < best.whose.work_seconds) and self._may_begin():
                heapq.heappop(self._waiting)
                self._begun.append(job)
                return job
        return best

    def _piece(self, job: Job, seconds: float) -> bool:
        """Take steps until the time is up; True when there are none left."""
        begin = self._seconds()
        end = begin + seconds
        try:
            for number in range(STEPS_MAX):
                job.bytes_held = max(job.bytes_held, next(job.steps))
                if not number & 3 and self._seconds() >= end:
                    break
        except StopIteration:
            return True
        finally:
            took = self._seconds() - begin
            job.whose.work_seconds += took
            self.pieces += 1
            self.longest_s[job.name] = max(self.longest_s.get(job.name, 0.0), took)
        return False
