"""Read the kernel's state of the wall clock by adjtimex(2) and ctypes: whether a time service keeps it right.

Does not contain: policy, other signs of a clock that was set. Source: adjtimex(2), linux/timex.h.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

STATUS_UNSYNCHRONISED = 0x0040  # STA_UNSYNC
CLOCK_ERROR = 5  # TIME_ERROR: not synchronised, or a pulse-per-second signal that the kernel follows is lost or bad


class KernelClock(NamedTuple):
    """Result and status bits of adjtimex(2)."""

    result: int
    status: int

    @property
    def is_synchronised(self) -> bool:
        """Whether a time service keeps the wall clock right, as far as the kernel knows."""
        return not self.status & STATUS_UNSYNCHRONISED

    @property
    def has_error(self) -> bool:
        """Whether the kernel reports an error of the clock, such as a lost signal of a synchronised one."""
        return self.result == CLOCK_ERROR


def read() -> KernelClock:
    """Read the kernel's state of the wall clock; no rights are needed.

    Raises OSError if the kernel refuses the call, as in some containers.
    """
    return _reader()()


def is_synchronised() -> bool:
    """Return whether a time service keeps the wall clock right; raises OSError as `read` does."""
    return read().is_synchronised


@cache
def _reader() -> Callable[[], KernelClock]:
    import ctypes  # noqa: PLC0415 - a program that never asks does not pay for it

    class Timex(ctypes.Structure):
        """The head of struct timex, and room for its rest."""

        _fields_ = (
            ("modes", ctypes.c_uint),
            ("offset", ctypes.c_long),
            ("freq", ctypes.c_long),
            ("maxerror", ctypes.c_long),
            ("esterror", ctypes.c_long),
            ("status", ctypes.c_int),
            ("rest", ctypes.c_byte * 256),
        )

    adjtimex = ctypes.CDLL(None, use_errno=True).adjtimex

    def read_kernel() -> KernelClock:
        timex = Timex()  # modes 0: read only
        result = adjtimex(ctypes.byref(timex))
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return KernelClock(result, timex.status)

    return read_kernel
