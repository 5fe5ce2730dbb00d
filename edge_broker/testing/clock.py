"""The clock of a simulated board: the loop's time since NOW_MS, and readings of a board whose clock is right.

Contains: time as the test lets it pass. Does not contain: the machine's own clock.
"""

from __future__ import annotations

import random
import uuid

from edge_broker.clock import Reading
from edge_broker.testing.loop import Loop

NOW_MS = 1_700_000_000_000


def reading_at(wall_ms: int) -> Reading:
    """The clocks of a board whose clock is right, in the one boot that it has."""
    return Reading("boot", wall_ms - NOW_MS + 1_000_000, wall_ms, trusted=True)


class HandClock:
    """The loop's time, which begins at `start_ms`; `chance` makes the ids."""

    def __init__(self, loop: Loop, chance: random.Random, start_ms: int = NOW_MS) -> None:
        self._loop = loop
        self._chance = chance
        self._start_ms = start_ms

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return self._start_ms + round(self._loop.now_s * 1000)

    def steady_ms(self) -> int:
        """The same: this clock is not set."""
        return self.wall_ms()

    def seconds(self) -> float:
        """The loop's time."""
        return self._loop.now_s

    def boot_ms(self) -> float:
        """The loop's time, in ms."""
        return self._loop.now_s * 1000

    def cpu_seconds(self) -> float:
        """The loop's time: work takes none."""
        return self._loop.now_s

    def reading(self) -> Reading:
        """The loop's time, which is right."""
        return reading_at(self.wall_ms())

    def refresh(self) -> Reading:
        """The same."""
        return self.reading()

    def new_uuid(self) -> uuid.UUID:
        """A UUID that the seed decides."""
        return uuid.UUID(int=self._chance.getrandbits(128), version=4)

    def new_token(self) -> str:
        """A text that the seed decides."""
        return f"{self._chance.getrandbits(128):032x}"

    def new_bytes(self, size: int) -> bytes:
        """Bytes that the seed decides."""
        return self._chance.randbytes(size)

    def pause(self) -> None:
        """No time passes: the test itself runs what is waited for."""
