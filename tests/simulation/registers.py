"""What a place may hold when several wrote to it, and not all of them know whether they did.

| write | may be there | takes away what was there before |
|---|---|---|
| open: nobody was answered | from when it was sent on | no |
| done: it was answered | until a later one is done | what had ended when it was sent |
| doubtful: refused late, or cut off by a crash | as done | no |

Lives here: that, as of linearizability. Must never come in: what the values are. Source: Herlihy and Wing, 1990.
"""

from __future__ import annotations

from typing import Generic, TypeVar

V = TypeVar("V")


class Write(Generic[V]):
    """One write; `sent` and `ended` count the driver's steps, `ended` is None while it is open."""

    __slots__ = ("doubtful", "ended", "sent", "value")

    def __init__(self, value: V, sent: int, ended: int | None = None) -> None:
        self.value = value
        self.sent = sent
        self.ended = ended
        self.doubtful = False


class Register(Generic[V]):
    """One place, which holds `value` in the beginning."""

    def __init__(self, value: V, now: int) -> None:
        self.writes = [Write(value, now, now)]

    def begin(self, value: V, now: int) -> Write[V]:
        """A write was sent."""
        write = Write(value, now)
        self.writes.append(write)
        return write

    def done(self, write: Write[V], now: int) -> None:
        """A write was answered; it takes away what had ended when it was sent."""
        write.ended = now
        self.writes = [one for one in self.writes if one.ended is None or one.ended >= write.sent]

    def refused(self, write: Write[V]) -> None:
        """A write did not happen."""
        if write in self.writes:
            self.writes.remove(write)

    def cut(self, now: int) -> None:
        """A crash: what is open has happened by now, or never."""
        for write in self.writes:
            if write.ended is None:
                write.ended, write.doubtful = now, True

    def seen(self, value: V, now: int) -> None:
        """It is known to hold this, and nothing is open."""
        self.writes = [Write(value, now, now)]

    @property
    def values(self) -> list[V]:
        """What it may hold."""
        return [write.value for write in self.writes]

    def steady(self, since: int) -> list[V]:
        """The one thing that it has held since then; nothing when that is not sure."""
        if len(self.writes) == 1 and self.writes[0].ended is not None and self.writes[0].ended < since:
            return [self.writes[0].value]
        return []
