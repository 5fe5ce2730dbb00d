"""Read a file that the user named; read a pipe for a bounded time.

| kind of file | how it is read |
|---|---|
| a regular file | whole, or its first bytes |
| a named pipe (fifo(7)) | until its writer closes it; a writer may come within FIFO_WAIT_S |
| the pipe of a shell, `<(command)` | the same within SHELL_WAIT_S: its command may ask a person for a passphrase |

Opening a pipe without a writer would block for ever, and so would reading one whose writer neither writes nor ends.
A running service reads with AT_ONCE_S: its clients must not wait for a pipe.

Does not contain: the check of permissions (secret_files.py). Source: fifo(7), pipe(7), open(2).
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from os import PathLike

FIFO_WAIT_S = 10.0
SHELL_WAIT_S = 120.0
AT_ONCE_S = 0.0
_PIECE_BYTES = 65_536


def read_named(
    path: str | PathLike[str],
    bytes_max: int | None = None,
    *,
    check: Callable[[os.stat_result], None] | None = None,
    wait_s: float | None = None,
) -> bytes:
    """Return the content of the file at `path`, at most `bytes_max` bytes of it.

    `check` gets the opened file's fstat before anything is read. `wait_s` bounds the wait for a pipe in seconds; None:
    as the table says. OSError; TimeoutError, whose text says what to do, for a pipe not written and closed by then.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if check is not None:
            check(status)
        if stat.S_ISFIFO(status.st_mode):
            return _read_pipe(descriptor, bytes_max, _wait_s(descriptor) if wait_s is None else wait_s)
        os.set_blocking(descriptor, True)
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(-1 if bytes_max is None else bytes_max)
    finally:
        os.close(descriptor)


def _wait_s(descriptor: int) -> float:
    """Return how long to wait for the writer of a pipe: that of a shell's pipe, which has no name, exists already."""
    try:
        named = os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return FIFO_WAIT_S
    return SHELL_WAIT_S if named.startswith("pipe:") else FIFO_WAIT_S


def _read_pipe(descriptor: int, bytes_max: int | None, wait_s: float) -> bytes:
    import select  # noqa: PLC0415 - for a pipe alone

    until_s, content, poll = time.monotonic() + wait_s, bytearray(), select.poll()
    poll.register(descriptor, select.POLLIN)
    while bytes_max is None or len(content) < bytes_max:
        # the kernel tells the end only once a writer was there
        if not poll.poll(max(0.0, until_s - time.monotonic()) * 1000):
            when = f"within {wait_s:g} s" if wait_s else "yet"
            raise TimeoutError(
                f"it is a pipe that no program has written and closed {when}; start the program that writes it, or "
                "name a file"
            )
        piece = os.read(descriptor, _PIECE_BYTES if bytes_max is None else min(_PIECE_BYTES, bytes_max - len(content)))
        if not piece:
            break
        content += piece
    return bytes(content)
