"""Whether the kernel holds the wall clock as synchronised, by adjtimex(2), through ctypes, loaded at the first use.

Does not contain: policy, other signs of a clock that was set. Source: adjtimex(2), linux/timex.h.
"""

from __future__ import annotations

import os

STATUS_UNSYNCHRONISED = 0x0040  # STA_UNSYNC


def is_synchronised() -> bool:
    """Whether a time service keeps the wall clock right, as far as it told the kernel; no rights are needed.

    Raises OSError where the kernel refuses the question, as in some containers.
    """
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

    timex = Timex()  # modes 0: read only
    if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex)) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return not timex.status & STATUS_UNSYNCHRONISED
