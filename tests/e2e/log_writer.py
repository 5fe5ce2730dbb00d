"""A log file that really grows and is rotated once, as logrotate does it: renamed, and a new file under the old name.

Each line carries `seq=N`, the running number over both files. The journal has a line `W SEQ NOW_MS` per line written,
after it was written. Nothing here knows Kafka or MQTT.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from tests.e2e.fleet import Journal, now_ms

EVENTS = (
    "pump started pressure_bar={:.2f}",
    "valve moved position_percent={:.0f}",
    "filter changed flow_lpm={:.1f}",
    "compressor cycle bar={:.2f}",
)


def line(seq: int, chance: random.Random) -> str:
    """One line of the log, without its newline."""
    stamp = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return f"{stamp} plant[{4711}]: seq={seq} {chance.choice(EVENTS).format(chance.uniform(1.0, 90.0))}"


def rotated(path: Path, file: TextIO) -> TextIO:
    """Rename the file to PATH.1 and open a new one; the old one must not exist yet."""
    file.close()
    path.rename(path.with_name(path.name + ".1"))
    return path.open("a", encoding="utf-8")


def main(words: Sequence[str] | None = None) -> int:
    """Write until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.log_writer", description="A growing, rotated log file.")
    parser.add_argument("--file", required=True, type=Path, help="the log")
    parser.add_argument("--journal", required=True, type=Path, metavar="FILE", help="append-only record of W lines")
    parser.add_argument("--rate", type=float, default=10.0, help="lines per second (default: %(default)s)")
    parser.add_argument("--rotate-after", type=float, metavar="SECONDS", help="rotate once, then (default: never)")
    parser.add_argument("--first-seq", type=int, default=0, help="number of the first line (default: %(default)s)")
    options = parser.parse_args(words)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    journal, chance, seq = Journal(options.journal), random.Random(11), options.first_seq
    file = options.file.open("a", encoding="utf-8")
    rotation = None if options.rotate_after is None else time.monotonic() + options.rotate_after
    print("log writer ready", flush=True)
    while not stop.wait(1 / options.rate):
        if rotation is not None and time.monotonic() > rotation:
            file, rotation = rotated(options.file, file), None
        print(line(seq, chance), file=file, flush=True)
        journal.write("W", seq, now_ms())
        seq += 1
    file.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
