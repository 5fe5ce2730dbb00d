"""Entry point of `edge-gateway` and `python -m gateway`; Ctrl-C during the imports ends them without a traceback."""

import sys

from drupelet.command.interrupts import quick_end

quick_end()

from gateway.cli import main  # noqa: E402 - after the line that covers it

if __name__ == "__main__":
    sys.exit(main())
