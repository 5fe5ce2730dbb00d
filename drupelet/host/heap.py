"""What the C library is told of memory: one heap for all threads, and what is free goes back to the system.

Lives here: mallopt(3) and malloc_trim(3), through ctypes, loaded at the first use; nothing where the C library has not
got them. Must never come in: how much memory is used, which is its owner's bound.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctypes import CDLL

M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8
LARGE_BYTES = 1024 * 1024
"""Above what a batch takes, packed or not: its pages were fetched from the system for each batch anew, and cleared,
which was nearly half of the CPU of a mirror that packs documents of 1 KB."""


@cache
def _libc() -> CDLL:
    import ctypes  # noqa: PLC0415 - the other commands do not pay for it

    return ctypes.CDLL(None)


def _set(name: int, value: int) -> None:
    if hasattr(_libc(), "mallopt"):
        _libc().mallopt(name, value)


def share_one_heap() -> None:
    """Let all threads allocate from one heap: the pages that one of them gave up serve the next. Before any thread."""
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
