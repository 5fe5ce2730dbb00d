"""Keeps on disk by which state each partition acts: one synced write for all that changed, none per record.

| event | next |
|---|---|
| `keep`, no write in progress | Keep: the whole file, with all changes |
| `keep`, a write in progress | the change waits for the next write |
| `finish_write` | the changes of that write count as kept; Keep, if others wait |
| `register` | Keep: the whole file, under the new registration |
| `abandon_write` | nothing counts as kept; Keep again at the next `retry` |

Contains: what is kept, what waits. Does not contain: the file (storage/metadata/kept_states.py), decisions (lines.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from edge_broker.storage.metadata.kept_states import KeptState, KeptStates, LogId

Write = Callable[[KeptStates, int], None]
NEVER_REGISTERED = -1


class StateKeeper:
    """The kept states of one disk; `write` replaces the file and leads to `finish_write` or `abandon_write`."""

    def __init__(self, kept: Mapping[LogId, KeptState], write: Write) -> None:
        self._kept = dict(kept)
        self._write = write
        self._waiting: dict[LogId, KeptState | None] = {}  # None: the log is gone
        self._in_progress: dict[LogId, KeptState] | None = None
        self._epoch = self._epoch_in_progress = self.registered_epoch = NEVER_REGISTERED  # wanted; written; synced

    def register(self, epoch: int) -> None:
        """Have the file name a registration; `registered_epoch` is that one once it does."""
        self._epoch = epoch
        self._begin()

    def kept_state(self, log: LogId) -> KeptState | None:
        """Return what the disk has of this log, synced."""
        return self._kept.get(log)

    def newest(self, log: LogId) -> KeptState | None:
        """Return what the disk has of this log, or will have once all writes are done."""
        return self._wanted_state(log)

    def keep(self, log: LogId, state: KeptState) -> bool:
        """Have a state kept; return whether it is already."""
        if self._wanted_state(log) != state:
            self._waiting[log] = state
            self._begin()
        return self._kept.get(log) == state and (self._in_progress is None or self._in_progress.get(log) == state)

    def forget(self, log: LogId) -> None:
        """Keep nothing of a log whose topic was deleted."""
        if self._wanted_state(log) is not None:
            self._waiting[log] = None
            self._begin()

    def _wanted_state(self, log: LogId) -> KeptState | None:
        """Return what the disk will have of a log once all writes are done."""
        if log in self._waiting:
            return self._waiting[log]
        return (self._kept if self._in_progress is None else self._in_progress).get(log)

    def _begin(self) -> None:
        if self._in_progress is not None or not (self._waiting or self._epoch != self.registered_epoch):
            return
        following = dict(self._kept)
        for log, state in self._waiting.items():
            if state is None:
                following.pop(log, None)
            else:
                following[log] = state
        self._waiting.clear()
        self._in_progress, self._epoch_in_progress = following, self._epoch
        self._write(following, self._epoch)

    def finish_write(self) -> tuple[LogId, ...]:
        """Count the write in progress as kept; return the logs whose kept state it changed."""
        assert self._in_progress is not None
        before, self._kept, self._in_progress = self._kept, self._in_progress, None
        self.registered_epoch = self._epoch_in_progress
        changed = tuple(log for log, state in self._kept.items() if before.get(log) != state)
        self._begin()
        return changed

    def abandon_write(self) -> None:
        """Take the changes of the write in progress back; `retry` writes them again."""
        assert self._in_progress is not None
        lost, self._in_progress = self._in_progress, None
        gone = {log: None for log in self._kept if log not in lost}
        changes: dict[LogId, KeptState | None] = {
            **gone,
            **{log: state for log, state in lost.items() if self._kept.get(log) != state},
        }
        self._waiting = {**changes, **self._waiting}

    def retry(self) -> None:
        """Write what waits."""
        self._begin()
