"""The clock and chance of the broker, as one value that is passed in.

Lives here: the only reads of wall time, monotonic time and randomness. Must never come in: waiting, timers, policy.
Tests and simulations pass their own object of the same shape.
"""

import secrets
import time
import uuid
from typing import Protocol


class Clock(Protocol):
    """What the broker may ask of time and chance."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970 by the system clock, which may jump."""

    def steady_ms(self) -> int:
        """Milliseconds that only ever grow; they begin at the wall clock's reading when the process started."""

    def new_uuid(self) -> uuid.UUID:
        """A fresh random UUID whose base64 form does not start with a dash."""

    def new_token(self) -> str:
        """A fresh unguessable text of 32 hexadecimal digits, for member ids."""


class SystemClock:
    """The machine's own clock and random source."""

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def wall_ms(self) -> int:
        """Milliseconds since 1970 by the system clock, which may jump."""
        return time.time_ns() // 1_000_000

    def steady_ms(self) -> int:
        """Milliseconds that only ever grow; they begin at the wall clock's reading when the process started."""
        return (time.monotonic_ns() + self._offset_ns) // 1_000_000

    def new_uuid(self) -> uuid.UUID:
        """A fresh random UUID (version 4); Kafka's reserved ids 0 and 1 cannot come out of it."""
        return uuid.uuid4()

    def new_token(self) -> str:
        """A fresh unguessable text of 32 hexadecimal digits."""
        return secrets.token_hex(16)
