"""`edge-board flash` against dd, on the same target in turn: `python -m tests.benchmarks.flash [--to DEVICE|FILE]`.

The level: its writing takes at most 1/0.9 of dd's time, and the process stays below 150 MB. dd writes as people do,
`bs=4M conv=fsync`. Reading back comes on top and is said apart. Whatever is on the target is lost.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support.runtimes import console_script

MB = 1_000_000
RATIO_MIN = 0.9
MEMORY_MB_MAX = 150
CHUNK_BYTES = 1 << 20


def main() -> int:
    """Print both rates for each round and their ratio; 1 if a level is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, help="a device, or a file that may be overwritten")
    parser.add_argument("--mb", type=int, default=1000, help="size of the image")
    parser.add_argument("--rounds", type=int, default=3)
    parsed = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        image = Path(folder) / "image"
        with image.open("wb") as file, Path("/dev/urandom").open("rb") as random:
            for _ in range(parsed.mb * MB // CHUNK_BYTES):
                file.write(random.read(CHUNK_BYTES))
        rounds = [one_round(image, parsed.to or Path(folder) / "card") for _ in range(parsed.rounds)]
    ratio = statistics.median(flash_rate / dd_rate for dd_rate, flash_rate, _ in rounds)
    memory_mb = max(memory for _, _, memory in rounds)
    print(f"median ratio {ratio:.2f} (level {RATIO_MIN}), memory {memory_mb:.0f} MB (level {MEMORY_MB_MAX})")
    return 0 if ratio >= RATIO_MIN and memory_mb < MEMORY_MB_MAX else 1


def one_round(image: Path, target: Path) -> tuple[float, float, float]:
    """Write by dd and by flash: both rates in MB/s, and the memory of flash in MB."""
    started = time.monotonic()
    subprocess.run(["dd", f"if={image}", f"of={target}", "bs=4M", "conv=fsync", "status=none"], check=True)
    dd_rate = image.stat().st_size / MB / (time.monotonic() - started)
    if target.is_file():
        target.unlink()
    words = [str(console_script("edge-board")), "flash", str(image), "--to", str(target), "--yes-really", str(target)]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(words, stderr=errors, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        errors.seek(0)
        said = errors.read()
    if status != 0:
        sys.exit(said)
    if target.is_file():
        target.unlink()
    found = re.findall(r"([\d.]+) ([MG])B/s$", said, re.MULTILINE)
    rates = [float(rate) * (1000 if unit == "G" else 1) for rate, unit in found]
    print(f"dd {dd_rate:.0f} MB/s, flash {rates[-2]:.0f} MB/s, reading back {rates[-1]:.0f} MB/s", flush=True)
    return dd_rate, rates[-2], usage.ru_maxrss * 1024 / MB


if __name__ == "__main__":
    sys.exit(main())
