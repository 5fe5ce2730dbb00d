"""Effects that a step leaves to the event loop: one queue, applied in order once the step is over.

| effect | what the event loop does |
|---|---|
| APPENDED log | has it synced, or wakes its waiters where the topic is left to the kernel |
| SHOWN log | asks everybody who waits for this log: more may be shown, or another broker leads |
| SYNC log | has its unsynced data synced for a waiting client |
| MARK log | has its in-use mark written, which an answer needs |
| ROLL log | closes its active segment in the worker `disk` |
| WRITE log | has its batch written by the worker `writer` |
| CHECK checking | has a batch's records checked by the worker `checker` |
| OFFLINE log | wakes the waiters of a log that was deleted or has failed |
| START outcome | executes work that no client waits for |
| ANSWER (token, response) | answers a parked request |
| FREED name | lets the first request go on that waits for this topic name |
| NOTE sentence | logs it |
| END_SESSIONS users | closes the connections of these users |
| AUDIT audited | logs it, or counts it among many of its event and source |

Contains: the queue. Does not contain: how an effect is applied (network/dispatch/dispatcher.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from enum import IntEnum, auto
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from edge_broker.broker.outcomes import Outcome, Steps
    from edge_broker.broker.record_checks import Checking
    from edge_broker.protocol.message import Message
    from edge_broker.storage.log.partition_log import PartitionLog


class Effect(IntEnum):
    """The kinds of effects, as in the table above."""

    APPENDED = 0
    SYNC = auto()
    SHOWN = auto()
    MARK = auto()
    ROLL = auto()
    WRITE = auto()
    CHECK = auto()
    OFFLINE = auto()
    START = auto()
    ANSWER = auto()
    FREED = auto()
    NOTE = auto()
    AUDIT = auto()
    END_SESSIONS = auto()


_APPENDED, _SYNC = Effect.APPENDED, Effect.SYNC


class AuditLine(NamedTuple):
    """A line of the log that a client has brought about.

    `source` is who did, empty where `fields` say it by `principal` or `host`. A `tally` has one number: how many lines
    of this event and source are counted only, which may still grow; then this is none of them.
    """

    event: str
    fields: Mapping[str, object]
    source: str = ""
    tally: list[int] | None = None


class Effects:
    """The queue; `left` holds pairs of a kind and what it is about."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left: deque[tuple[Effect, Any]] = deque()

    def log_appended(self, log: PartitionLog) -> None:
        """A batch was written to this log."""
        self.left.append((_APPENDED, log))

    def high_watermark_moved(self, log: PartitionLog) -> None:
        """More of this log may be shown, or it is another broker's to answer for."""
        self.left.append((Effect.SHOWN, log))

    def sync(self, log: PartitionLog) -> None:
        """A client waits for unsynced data of this log."""
        self.left.append((_SYNC, log))

    def mark(self, log: PartitionLog) -> None:
        """An answer needs the in-use mark of this log."""
        self.left.append((Effect.MARK, log))

    def roll(self, log: PartitionLog) -> None:
        """The active segment of this log is full, or too old."""
        self.left.append((Effect.ROLL, log))

    def write(self, log: PartitionLog) -> None:
        """A write of this log was begun, for the worker."""
        self.left.append((Effect.WRITE, log))

    def check(self, checking: Checking) -> None:
        """The records of this batch are to be checked by the worker."""
        self.left.append((Effect.CHECK, checking))

    def offline(self, logs: Iterable[PartitionLog]) -> None:
        """These logs were deleted or have failed."""
        self.left.extend((Effect.OFFLINE, log) for log in logs)

    def start(self, outcome: Outcome) -> None:
        """This goes on without a client."""
        self.left.append((Effect.START, outcome))

    def answer(self, token: int, response: Message | Steps) -> None:
        """The request that was parked under this token is answered."""
        self.left.append((Effect.ANSWER, (token, response)))

    def names_freed(self, names: Iterable[str]) -> None:
        """These topic names are free again."""
        self.left.extend((Effect.FREED, name) for name in names)

    def note(self, *sentences: str) -> None:
        """These sentences are logged."""
        self.left.extend((Effect.NOTE, sentence) for sentence in sentences)

    def audit(self, event: str, **fields: object) -> None:
        """A client was let in or denied something; no secret is among the fields."""
        self.add_audit_line(AuditLine(event, fields))

    def add_audit_line(self, audited: AuditLine) -> None:
        """The same, with a source of its own or a tally."""
        self.left.append((Effect.AUDIT, audited))

    def end_sessions(self, users: frozenset[str]) -> None:
        """These users are gone, and their connections with them."""
        self.left.append((Effect.END_SESSIONS, users))
