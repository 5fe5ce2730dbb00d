"""Count the bytes of all connections of one end, with those that have ended.

Does not contain: connections, which report by `wire_bytes`, and the time of their opening.
"""

from __future__ import annotations

from typing import Protocol


class Carries(Protocol):
    """A connection that carries bytes."""

    def wire_bytes(self) -> tuple[int, int]:
        """Return bytes out and in so far."""


class Traffic:
    """The sum over connections; each reports its start and, while its socket is open, its end."""

    def __init__(self) -> None:
        self._out = self._in = 0
        self._open: set[Carries] = set()

    def begins(self, one: Carries) -> None:
        """Count its bytes from now on."""
        self._open.add(one)

    def ends(self, one: Carries) -> None:
        """Add its bytes so far, once; a second call changes nothing."""
        if one in self._open:
            self._open.discard(one)
            out, back = one.wire_bytes()
            self._out, self._in = self._out + out, self._in + back

    def total(self) -> tuple[int, int]:
        """Return bytes out and in, ever."""
        now = [one.wire_bytes() for one in self._open]
        return self._out + sum(out for out, _ in now), self._in + sum(back for _, back in now)
