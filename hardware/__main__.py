"""Entry point of `edge-board` and `python -m hardware`; Ctrl-C during the imports ends them without a traceback."""

import sys

from drupelet.command.interrupts import quick_end

quick_end()

from hardware.cli import main  # noqa: E402 - after the line that covers it

if __name__ == "__main__":
    sys.exit(main())
