"""Forward the losses of one broker from its journal to the leader of `__edge_ledger`.

| stage | event | next |
|---|---|---|
| idle | a tick: the journal has entries, and the ledger has a leader | forwarding: Forward, the oldest entries |
| forwarding | taken: enough disks of the cluster have them | forgetting: Forget |
| forwarding | refused | pausing |
| forwarding | no answer within ANSWER_MS: the outcome is unknown | pausing |
| forgetting | the journal has let go of them | idle |
| forgetting | the disk refused that | pausing |
| pausing | its time is over; twice as long each time, up to PAUSE_MS_MAX, until something is taken | idle |

One request is under way at a time, and begins with the oldest entry of the journal. So an entry whose fate is not known
is forwarded again until an answer says that it is taken; the leader knows by its directory, sequence and id whether its
log has it already (broker/cluster/ledger_entries.py). An answer to an earlier request says nothing any more.

Contains: when, and to whom. Does not contain: entries, files, sockets. Source: KIP-98 for one in flight and numbers
that tell a retry; the ids are kept by the log itself, as producers' states expire.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol

from edge_broker.cluster.effects import Effect, Forget, Forward
from edge_broker.errors import ErrorCode

ANSWER_MS = 30_000.0
PAUSE_MS = 200.0
PAUSE_MS_MAX = 5_000.0


class Journal(Protocol):
    """The journal, as far as it matters when to forward."""

    @property
    def waits(self) -> bool:
        """Whether it has entries that are synced."""


class Stage(Enum):
    """As above."""

    IDLE = auto()
    FORWARDING = auto()
    FORGETTING = auto()
    PAUSING = auto()


class Forwarding:
    """One journal's; `emit` takes effects."""

    def __init__(self, emit: Callable[[Effect], None]) -> None:
        self._emit = emit
        self.journal: Journal | None = None
        self.stage = Stage.IDLE
        self.turn = 0
        self._due_ms = 0.0
        self._pause_ms = PAUSE_MS
        self.refused = ""  # why nothing was taken the last time, for people; empty: it was

    def tick(self, now_ms: float, leader: int | None) -> None:
        """Time has passed; `leader` is the registered leader of `__edge_ledger`, None: none."""
        if self.stage is Stage.FORWARDING and now_ms >= self._due_ms:
            self._pause(now_ms, "no answer came in time")
        elif self.stage is Stage.PAUSING and now_ms >= self._due_ms:
            self.stage = Stage.IDLE
        if self.stage is Stage.IDLE and leader is not None and self.journal is not None and self.journal.waits:
            self.turn += 1
            self.stage, self._due_ms = Stage.FORWARDING, now_ms + ANSWER_MS
            self._emit(Forward(leader, self.turn))

    def answer_received(self, turn: int, error: ErrorCode, end_offset: int, now_ms: float) -> None:
        """The outcome of a request: NONE, and the journal's entries before `end_offset` are taken; else why not."""
        if turn != self.turn or self.stage is not Stage.FORWARDING:
            return
        if error is ErrorCode.NONE:
            self.stage, self._pause_ms, self.refused = Stage.FORGETTING, PAUSE_MS, ""
            self._emit(Forget(end_offset))
        else:
            self._pause(now_ms, error.name)

    def entries_forgotten(self, now_ms: float, *, done: bool) -> None:
        """The journal has let go of what was taken, or could not."""
        if self.stage is Stage.FORGETTING:
            if done:
                self.stage = Stage.IDLE
            else:
                self._pause(now_ms, "the journal's disk refused to let go of what was taken")

    def _pause(self, now_ms: float, why: str) -> None:
        self.stage, self._due_ms, self.refused = Stage.PAUSING, now_ms + self._pause_ms, why
        self._pause_ms = min(self._pause_ms * 2, PAUSE_MS_MAX)
