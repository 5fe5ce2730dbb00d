"""The clock and chance of the broker, as one value that is passed in.

Contains: the only reads of wall time, monotonic time, boot id, trust in the clock, and randomness. Does not contain:
timers, policy. Tests and simulations pass their own object of the same shape. Source: clock_gettime(2),
adjtimex(2), random(4).

Time since boot is CLOCK_BOOTTIME: unlike CLOCK_MONOTONIC it goes on while the machine sleeps, and data ages then too.
"""

import os  # urandom: secrets, which is no more than that, costs 0.1 MB
import time
import uuid
from typing import NamedTuple, Protocol

from drupelet.host import kernel_clock

BOOT_ID_PATH = "/proc/sys/kernel/random/boot_id"


class Reading(NamedTuple):
    """All clocks at one moment; `trusted`: the wall clock is right, as far as was known at the last look.

    `verified`: a time service says so; else only the configuration does.
    """

    boot_id: str
    boot_ms: int
    wall_ms: int
    trusted: bool
    verified: bool = True


class Clock(Protocol):
    """The time and randomness that the broker may read."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970 by the system clock, which may jump."""

    def steady_ms(self) -> int:
        """Milliseconds that only ever grow; they begin at the wall clock's reading when the process started."""

    def seconds(self) -> float:
        """Seconds that only ever grow, fine enough to time one write."""

    def boot_ms(self) -> float:
        """Milliseconds since the machine's boot, those in which it slept too."""

    def cpu_seconds(self) -> float:
        """Seconds of CPU time that the calling thread has used."""

    def reading(self) -> Reading:
        """All clocks now; `trusted` as of the last `refresh`."""

    def refresh(self) -> Reading:
        """Return all clocks now, after a new check whether the wall clock is right."""

    def new_uuid(self) -> uuid.UUID:
        """A fresh random UUID whose base64 form does not start with a dash."""

    def new_token(self) -> str:
        """A fresh unguessable text of 32 hexadecimal digits, for member ids."""

    def new_bytes(self, size: int) -> bytes:
        """So many fresh unguessable bytes, for salts and nonces."""

    def pause(self) -> None:
        """Let 50 ms pass, in a worker that waits for another process."""


class SystemClock:
    """The machine's own clock and random source."""

    def __init__(self, trusted: str = "auto", boot_id_path: str = BOOT_ID_PATH) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()
        self._choice = trusted
        self._trusted = trusted == "true"
        self._verified = False
        self._boot_id = _boot_id(boot_id_path)

    def wall_ms(self) -> int:
        """Milliseconds since 1970 by the system clock, which may jump."""
        return time.time_ns() // 1_000_000

    def steady_ms(self) -> int:
        """Milliseconds that only ever grow; they begin at the wall clock's reading when the process started."""
        return (time.monotonic_ns() + self._offset_ns) // 1_000_000

    seconds = staticmethod(time.perf_counter)  # called around every write, so without a frame of its own
    cpu_seconds = staticmethod(time.thread_time)

    def boot_ms(self) -> float:
        """Milliseconds since the machine's boot, those in which it slept too."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) * 1000

    def reading(self) -> Reading:
        """All clocks now; `trusted` as of the last `refresh`, False before the first one unless it was told."""
        boot_ms = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
        return Reading(self._boot_id, boot_ms, time.time_ns() // 1_000_000, self._trusted, self._verified)

    def refresh(self) -> Reading:
        """Return all clocks now, after a new check whether the wall clock is right; unknown counts as wrong."""
        if self._choice != "false":
            try:
                self._verified = kernel_clock.is_synchronised()
            except OSError:
                self._verified = False
            self._trusted = self._verified or self._choice == "true"
        return self.reading()  # after trust, so that a clock that is set in between is not believed by mistake

    def new_uuid(self) -> uuid.UUID:
        """A fresh random UUID (version 4); Kafka's reserved ids 0 and 1 cannot come out of it."""
        return uuid.uuid4()

    def new_token(self) -> str:
        """A fresh unguessable text of 32 hexadecimal digits."""
        return os.urandom(16).hex()

    def new_bytes(self, size: int) -> bytes:
        """So many fresh unguessable bytes."""
        return os.urandom(size)

    def pause(self) -> None:
        """Let 50 ms pass, in a worker that waits for another process."""
        time.sleep(0.05)


def _boot_id(path: str) -> str:
    """The kernel's id of this boot; one of our own where it may not be read: each start then counts as a boot."""
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return str(uuid.uuid4())
