"""Tune the C library's memory: one heap for all threads, and free memory returns to the system.

Contains: mallopt(3) and malloc_trim(3), by ctypes, loaded at the first use; no effect if the C library lacks them.
Does not contain: the bound of used memory, which each owner has.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctypes import CDLL

M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8
LARGE_BYTES = 1024 * 1024
"""Above the size of a batch, packed or not: otherwise each batch got new pages from the system, to be cleared,
which took nearly half of the CPU of a mirror that packs documents of 1 KB."""


@cache
def _libc() -> CDLL:
    import ctypes  # noqa: PLC0415 - the other commands do not pay for it

    return ctypes.CDLL(None)


def _set(name: int, value: int) -> None:
    if hasattr(_libc(), "mallopt"):
        _libc().mallopt(name, value)


def share_one_heap() -> None:
    """Let all threads share one heap, so that one reuses the pages of another. Call it before any thread starts."""
    _set(M_ARENA_MAX, 1)


def give_back_large_buffers() -> None:
    """Have buffers of LARGE_BYTES and more go back to the system when they are freed.

    Otherwise glibc raises its threshold to the largest buffer that was freed, and keeps holes of that size.
    """
    _set(M_MMAP_THRESHOLD, LARGE_BYTES)


def give_back_memory() -> None:
    """Return free pages of the heap to the system, of which the C library keeps some MB otherwise."""
    if hasattr(_libc(), "malloc_trim"):
        import ctypes  # noqa: PLC0415

        _libc().malloc_trim(ctypes.c_size_t(0))
