"""What the C library is told of memory, by a process that holds large buffers for a short while.

Must never come in: how much memory is used, which is its owner's bound. Source: mallopt(3).
"""

from __future__ import annotations

M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8
LARGE_BYTES = 128 * 1024


def give_back_large_buffers() -> None:
    """Have buffers of LARGE_BYTES and more go back to the system when they are freed, and all threads share one heap.

    Otherwise glibc raises its threshold to the largest buffer that was freed, and keeps holes of that size in a heap
    for each thread. To be called before there is a second thread. Nothing where the C library has no mallopt(3).
    """
    import ctypes  # noqa: PLC0415 - the other commands do not pay for it

    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
        libc.mallopt(M_ARENA_MAX, 1)
