"""Where `edge-broker` and `python -m edge_broker` start; Ctrl-C ends them without a word while the rest is imported."""

import sys

from drupelet.command.interrupts import quick_end

quick_end()

from edge_broker.cli import main  # noqa: E402 - after the line that covers it

if __name__ == "__main__":
    sys.exit(main())
