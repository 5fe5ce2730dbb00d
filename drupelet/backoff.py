"""Compute the wait before the next attempt: exponential backoff with a bound and jitter.

Does not contain: the wait itself, which is in the caller's loop.
"""

from __future__ import annotations

import random

FIRST_S = 0.2
MAX_S = 10.0
_DOUBLINGS_MAX = 20


def backoff_s(attempt: int, first_s: float, max_s: float, chance: float) -> float:
    """Seconds to wait before retry `attempt` (from 0): half to all of the doubled and bounded `first_s`.

    `chance` lies in [0, 1); 0 gives the half.
    """
    return min(max_s, first_s * 2.0 ** min(attempt, _DOUBLINGS_MAX)) * (0.5 + chance / 2)


class Backoff:
    """Waits that grow from `first_s` to `max_s`, both in seconds, until `reset`."""

    def __init__(self, first_s: float = FIRST_S, max_s: float = MAX_S) -> None:
        self._first_s = first_s
        self._max_s = max_s
        self._attempt = 0

    def reset(self) -> None:
        """Start again with the shortest wait."""
        self._attempt = 0

    def next_s(self) -> float:
        """Seconds to wait now; the next time it is longer."""
        self._attempt += 1
        return backoff_s(self._attempt - 1, self._first_s, self._max_s, random.random())  # noqa: S311 - no secret
