"""Where `edge-spark` and `python -m spark` start; Ctrl-C ends them without a word while the rest is imported."""

import sys

from drupelet.command.interrupts import quick_end

quick_end()

from spark.cli import main  # noqa: E402 - after the line that covers it

if __name__ == "__main__":
    sys.exit(main())
