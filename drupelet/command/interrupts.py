"""Ctrl-C around a command: while Python imports it, and when its work is done.

| while | Ctrl-C |
|---|---|
| Python imports (`quick_end`, first thing in each `__main__`) | ends the process without a word, as the kernel does |
| the work runs (`interruptible`) | is KeyboardInterrupt, as ever |
| Python takes the rest down | ends the process without a word |

Whoever started the process with SIGINT ignored, as a shell does in the background, has it ignored throughout.
Must never come in: anything that costs time to import, as it is not covered itself.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


def quick_end() -> None:
    """Let Ctrl-C end the process at once: there is nothing yet to be left in order."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C be KeyboardInterrupt meanwhile, where `quick_end` had changed that."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_DFL:
        yield
        return
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
