"""Delays log-ins as a user from an address after failures there, in growing steps; no user is ever locked out.

| failures since the last success | the next log-in as this user from this address |
|---|---|
| up to FREE_FAILURES | at once |
| more | waits for its turn: one per step, and each failure doubles the step up to STEP_MS_MAX |
| so many wait that its turn would come after WAIT_MS_MAX, or WAITING_MAX of all wait | `TooMany`: none is tried |

A success ends the delays. One failure is forgotten every STEP_MS_MAX, so that a guesser has one guess per STEP_MS_MAX
in the long run. The same user from another address, and another user from the same one, do not wait. Names that are
no user are delayed alike, or a delay would tell who exists. Closing a connection that waits gives no turn back.

Memory holds ENTRIES_MAX pairs of user and address, the latest failures. Does not contain: clocks, timers, log-ins.
"""

from __future__ import annotations

from collections import deque
from hashlib import sha256
from typing import TypeAlias

FREE_FAILURES = 10
STEP_MS_MAX = 5000
WAIT_MS_MAX = 8000  # of the 10 s that a connection has for its log-in
WAITING_MAX = 256
ENTRIES_MAX = 2048
FAILURES_MAX = 720  # an hour of STEP_MS_MAX
Key: TypeAlias = tuple[str, bytes]


class TooMany(Exception):
    """So many log-ins wait that one more is not tried."""


class _Entry:
    __slots__ = ("as_of_ms", "failures", "free_ms")

    def __init__(self, now_ms: int) -> None:
        self.failures = 0.0
        self.as_of_ms = self.free_ms = now_ms

    def forget(self, now_ms: int) -> None:
        """Forget the failures whose time is over."""
        self.failures = max(0.0, self.failures - (now_ms - self.as_of_ms) / STEP_MS_MAX)
        self.as_of_ms = now_ms


class FailureDelays:
    """The failures of each user and address; `first_step_ms` is the first step, 0: no delays."""

    def __init__(self, first_step_ms: int) -> None:
        self._first_step_ms = first_step_ms
        self._entries: dict[Key, _Entry] = {}  # the latest failure last
        self._turns: deque[int] = deque()  # when each of those that wait has its turn, in milliseconds

    def __len__(self) -> int:
        return len(self._entries)

    def admit(self, user: str, host: str, now_ms: int) -> int:
        """Return how many milliseconds a log-in waits before its password is looked at; TooMany."""
        entry = self._entries.get(_key(user, host))
        if entry is None:
            return 0
        entry.forget(now_ms)
        step_ms = self._step_ms(entry)
        if not step_ms:
            return 0
        turn_ms = max(now_ms, entry.free_ms)
        if turn_ms > now_ms and (turn_ms - now_ms > WAIT_MS_MAX or self._waiting(now_ms) >= WAITING_MAX):
            raise TooMany
        entry.free_ms = turn_ms + step_ms
        if turn_ms > now_ms:
            self._turns.append(turn_ms)
        return turn_ms - now_ms

    def login_failed(self, user: str, host: str, now_ms: int) -> None:
        """A password, or a proof of it, was wrong."""
        if not self._first_step_ms:
            return
        key = _key(user, host)
        entry = self._entries.pop(key, None) or _Entry(now_ms)
        entry.forget(now_ms)
        entry.failures = min(entry.failures + 1, FAILURES_MAX)
        entry.free_ms = max(entry.free_ms, now_ms + self._step_ms(entry))
        self._entries[key] = entry
        if len(self._entries) > ENTRIES_MAX:
            del self._entries[next(iter(self._entries))]

    def login_succeeded(self, user: str, host: str) -> None:
        """A log-in succeeded: the next ones from this address do not wait."""
        if self._entries:
            self._entries.pop(_key(user, host), None)

    def _step_ms(self, entry: _Entry) -> int:
        over = int(entry.failures) - FREE_FAILURES
        return min(self._first_step_ms << min(over, 16), STEP_MS_MAX) if over > 0 else 0

    def _waiting(self, now_ms: int) -> int:
        """Return how many wait at most: one whose connection was closed counts until its turn is over."""
        self._turns = deque(turn_ms for turn_ms in self._turns if turn_ms > now_ms)
        return len(self._turns)


def _key(user: str, host: str) -> Key:
    """A user's name may be long: 16 bytes stand for it."""
    return host, sha256(user.encode(errors="replace")).digest()[:16]
