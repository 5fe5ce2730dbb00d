"""Starts `edge-mirror` and `python -m mirror`; Ctrl-C ends them silently while the rest is imported."""

import sys

from drupelet.command.interrupts import quick_end

quick_end()

from mirror.cli import main  # noqa: E402 - after the line that covers it

if __name__ == "__main__":
    sys.exit(main())
