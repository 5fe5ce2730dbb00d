"""Files in memory, for what OpenSSL reads from files alone.

Does not contain: what is in them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def as_file(text: str) -> Iterator[str]:
    """The path of a file with this text, invisible to other processes: the checked text is the used one."""
    descriptor = os.memfd_create("drupelet", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, text.encode("ascii", errors="replace"))
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
