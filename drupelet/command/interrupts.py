"""Handle Ctrl-C while Python imports a command, and after its work.

| while | Ctrl-C |
|---|---|
| Python imports (`quick_end`, first thing in each `__main__`) | ends the process silently, as the kernel does |
| the work runs (`interruptible`) | is KeyboardInterrupt, as usual |
| Python shuts down | ends the process silently |

A process that starts with SIGINT ignored, as in a shell's background, ignores it throughout.
Does not contain: imports that cost time, as Ctrl-C during them is not handled.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


def quick_end() -> None:
    """Let Ctrl-C end the process at once: no work has begun."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C be KeyboardInterrupt during the block, if `quick_end` had changed that."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_DFL:
        yield
        return
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
