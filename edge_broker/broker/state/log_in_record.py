"""Records durably which credentials have been used, for the command `edge-broker user list` and for rotations.

| log-in | write |
|---|---|
| the first one by a credential | one, synced by the worker `files`; the client does not wait for it |
| a later one, a day or more after the recorded last one | one |
| by an older generation than the one that is recorded as used last | one |
| by a newer generation than that one | one, `RETURNS_MAX` of these in `RETURNS_MS` |
| any other | none |

So the file has which generation of a log-in was used last (security/generations.py): a service that got its former
files back is not locked out by the end of the rotation. Their times rise, also when the clock is set back.

One write is in flight at most; log-ins that come meanwhile share the next one. After a failed write the next log-in
retries. A crash before the write only delays the end of a rotation.

Does not contain: the file (storage/metadata/log_in_times.py), who may log in (authentication.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from edge_broker.broker.outcomes import Outcome, Reply, RunInWorker
from edge_broker.errors import StorageFault
from edge_broker.security.generations import generation_of
from edge_broker.security.state import SecurityState, credential_tag
from edge_broker.storage.metadata.log_in_times import (
    DAY_MS,
    LogInTimes,
    read_log_in_times,
    valid_times,
    write_log_in_times,
)

if TYPE_CHECKING:
    from edge_broker.broker.effects import Effects
    from edge_broker.clock import Clock
    from edge_broker.storage.files.filesystem import FileSystem

RETURNS_MAX, RETURNS_MS = 10, 600_000  # two clients that use two generations in turn cost two writes a minute


def families(users: Iterable[str]) -> dict[str, set[str]]:
    """Return the generations of each log-in, by the name of the first one."""
    found: dict[str, set[str]] = {}
    for user in users:
        found.setdefault(generation_of(user)[0], set()).add(user)
    return found


class LogInRecord:
    """The log-ins of each user by its present credentials; owned by the loop."""

    def __init__(self, fs: FileSystem, data_dir: str, clock: Clock, effects: Effects) -> None:
        self._fs = fs
        self._data_dir = data_dir
        self._clock = clock
        self._effects = effects
        self._state = SecurityState()
        self._is_writing = False
        self._problem = ""
        try:
            self._stored = read_log_in_times(fs, data_dir)
        except StorageFault as fault:
            self._stored = {}
            self._note(f"the log-ins of users cannot be read, and are recorded again: {fault}")
        self._times = dict(self._stored)
        self._families = families(self._times)
        self._returns: dict[str, list[int]] = {}

    def add(self, user: str, state: SecurityState) -> None:
        """Record that a user of `state` has logged in now."""
        tag, now_ms = credential_tag(state.users[user]), self._clock.wall_ms()
        known = self._times.get(user)
        family = self._families.setdefault(generation_of(user)[0], set())
        if family - {user}:
            now_ms = max(now_ms, *(self._times[one].last_ms + 1 for one in family))
        family.add(user)
        first_ms = now_ms if known is None or known.tag != tag else known.first_ms
        self._times[user] = LogInTimes(tag, first_ms, now_ms)
        self._state = state
        if any(self._is_due(one) for one in family):
            self._write()

    def _is_due(self, user: str) -> bool:
        stored, now = self._stored.get(user), self._times[user]
        if stored is None or stored.tag != now.tag or abs(now.last_ms - stored.last_ms) >= DAY_MS:
            return True
        if now.last_ms == stored.last_ms:
            return False
        newer = self._generation_used_last(user) - generation_of(user)[1]
        return newer > 0 or (newer < 0 and len(self._recent_returns(user)) < RETURNS_MAX)

    def _generation_used_last(self, user: str) -> int:
        """Return the generation of a stored user's log-in that the file has as used last."""
        family = [one for one in self._families[generation_of(user)[0]] if one in self._stored]
        return generation_of(max(family, key=lambda one: self._stored[one].last_ms))[1]

    def _recent_returns(self, user: str) -> list[int]:
        """Return when a newer generation of a user's log-in was recorded after an older one."""
        earliest = self._clock.steady_ms() - RETURNS_MS
        return [one for one in self._returns.get(generation_of(user)[0], ()) if one > earliest]

    def _note_returns(self) -> None:
        for user in self._times:
            if (
                user in self._stored
                and self._generation_used_last(user) < generation_of(user)[1]
                and self._is_due(user)
            ):
                self._returns[generation_of(user)[0]] = [*self._recent_returns(user), self._clock.steady_ms()]

    def _write(self) -> None:
        if self._is_writing:
            return
        self._is_writing = True
        self._times = valid_times(self._times, self._state)
        self._families = families(self._times)
        self._note_returns()
        times, fs, data_dir = dict(self._times), self._fs, self._data_dir

        def times_written(_: object) -> Outcome:
            self._stored = times
            self._problem = ""
            if any(self._is_due(user) for user in self._times):
                self._write()
            return Reply(None)

        def writing_failed(error: Exception) -> Outcome:
            self._note(f"the log-ins of users are not recorded, so a rotation of passwords ends later: {error}")
            return Reply(None)

        work = lambda: write_log_in_times(fs, data_dir, times)  # noqa: E731
        self._effects.start(RunInWorker(work, times_written, writing_failed, over=self._write_ended, background=True))

    def _write_ended(self) -> None:
        self._is_writing = False

    def _note(self, sentence: str) -> None:
        if sentence != self._problem:
            self._problem = sentence
            self._effects.note(sentence)
