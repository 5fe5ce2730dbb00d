"""The few system calls that Python's os module has not got.

Contains: sync_file_range(2), syncfs(2), fallocate(2), fstatfs(2) and statx(2), through ctypes, loaded at the first
use. Does not contain: policy, and memory (drupelet.host.heap). They raise OSError as the system does, and let
other threads run meanwhile.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctypes import CDLL

FALLOC_FL_KEEP_SIZE = 1
SYNC_FILE_RANGE_WRITE = 2
AT_FDCWD = -100
STATX_MNT_ID_UNIQUE = 0x4000
STATX_MNT_ID_POSITION = 144


@cache
def _libc() -> CDLL:
    import ctypes  # noqa: PLC0415 - a broker that never needs it does not pay for it

    return ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> int:
    if result < 0:
        import ctypes  # noqa: PLC0415

        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def sync_file_range(descriptor: int, position: int, size: int) -> None:
    """Start to write a file's dirty pages out, without waiting for them; `size` 0 reaches to the end."""
    import ctypes  # noqa: PLC0415

    long = ctypes.c_int64
    _check(_libc().sync_file_range(descriptor, long(position), long(size), ctypes.c_uint(SYNC_FILE_RANGE_WRITE)))


def syncfs(descriptor: int) -> None:
    """Return when everything of the file system that holds this file is on the disk."""
    _check(_libc().syncfs(descriptor))


def file_system_type(descriptor: int) -> int:
    """The magic number of the file system that holds this file, as statfs(2) lists them."""
    import ctypes  # noqa: PLC0415

    class StatFs(ctypes.Structure):
        """The head of struct statfs, and room for its rest."""

        _fields_ = (("type", ctypes.c_long), ("rest", ctypes.c_byte * 256))

    found = StatFs()
    _check(_libc().fstatfs(descriptor, ctypes.byref(found)))
    return int(found.type) & 0xFFFFFFFF


def mount_id(path: str) -> int | None:
    """The id of the mount that `path` lies in, never given twice in a boot; None before Linux 6.8."""
    import ctypes  # noqa: PLC0415

    if not hasattr(_libc(), "statx"):
        return None
    found = ctypes.create_string_buffer(256)
    wanted = ctypes.c_uint(STATX_MNT_ID_UNIQUE)
    _check(_libc().statx(AT_FDCWD, os.fsencode(path), 0, wanted, found))
    data = found.raw
    if not int.from_bytes(data[0:4], sys.byteorder) & STATX_MNT_ID_UNIQUE:
        return None
    return int.from_bytes(data[STATX_MNT_ID_POSITION : STATX_MNT_ID_POSITION + 8], sys.byteorder)


def reserve(descriptor: int, position: int, size: int) -> None:
    """Set disk blocks aside for a range of a file without writing to them or changing its size."""
    import ctypes  # noqa: PLC0415

    long = ctypes.c_int64
    name = "fallocate64" if hasattr(_libc(), "fallocate64") else "fallocate"
    _check(getattr(_libc(), name)(descriptor, FALLOC_FL_KEEP_SIZE, long(position), long(size)))
