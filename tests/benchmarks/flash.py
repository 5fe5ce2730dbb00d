"""`edge-board flash` against dd, in turn on the same target: `python -m tests.benchmarks.flash [--to DEVICE|FILE ...]`.

The level: its writing takes at most 1/0.9 of dd's time, and the process stays below 150 MB. dd writes as people do,
`bs=4M conv=fsync`, a packed image through a pipe; `oflag=direct` is told beside it, as the page cache slows dd on
some machines. Which of the two goes first changes from round to round. Reading back comes on top and is said apart.
Without `--to`: a file here and, for root, a loop device on a file here. Whatever is on the target is lost.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.card_images import boot_sector
from tests.support.runtimes import console_script

MB = 1_000_000
RATIO_MIN = 0.9
MEMORY_MB_MAX = 150
CHUNK_BYTES = 1 << 20
UNPACKERS = {"raw": "cat", "xz": "xz -dc", "zst": "zstd -dc"}
PACKERS = {"xz": "xz -1 -T0 -c", "zst": "zstd -q -3 -c"}


@dataclass(frozen=True)
class Round:
    """Rates in MB/s of unpacked image, and the memory of flash in MB."""

    dd: float
    dd_direct: float
    flash: float
    reading: float
    memory: float


def main() -> int:
    """Print the medians of each target and packing; 1 if a level is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, action="append", help="a device, or a file that may be overwritten")
    parser.add_argument("--mb", type=int, default=1000, help="size of the image")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--packing", action="append", choices=UNPACKERS, help="raw, xz, zst; all without it")
    parsed = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as folder, contextlib.ExitStack() as stack:
        targets = parsed.to or list(own_targets(Path(folder), parsed.mb * MB, stack))
        images = make_images(Path(folder), parsed.mb * MB, parsed.packing or list(UNPACKERS))
        passed = [
            measure(packing, image, target, parsed.mb, parsed.rounds)
            for target in targets
            for packing, image in images.items()
        ]
    return 0 if all(passed) else 1


def own_targets(folder: Path, size: int, stack: contextlib.ExitStack) -> Iterator[Path]:
    """Give a file, and for root a loop device."""
    yield folder / "card"
    if os.geteuid() == 0:
        yield stack.enter_context(loop_device(folder / "disk", size + 16 * CHUNK_BYTES))


@contextlib.contextmanager
def loop_device(file: Path, size: int) -> Iterator[Path]:
    """Make a loop device on a new file."""
    with file.open("wb") as made:
        made.truncate(size)
    words = ["losetup", "--find", "--show", str(file)]
    device = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    try:
        yield Path(device)
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)
        file.unlink()


def make_images(folder: Path, size: int, packings: list[str]) -> dict[str, Path]:
    """Make an image that packs to about a half, as real ones do to a fifth, in each packing asked for."""
    raw = folder / "image"
    with raw.open("wb") as file, Path("/dev/urandom").open("rb") as random:
        file.write(boot_sector(size // 512 * 512))
        while file.tell() < size:
            file.write(random.read(CHUNK_BYTES // 2).hex().encode())
    for packing in packings:
        if packing in PACKERS:
            subprocess.run(f"{PACKERS[packing]} {raw} > {raw}.{packing}", shell=True, check=True)
    return {packing: raw.with_name(f"image.{packing}") if packing in PACKERS else raw for packing in packings}


def measure(packing: str, image: Path, target: Path, mb: int, rounds: int) -> bool:
    """Print the medians of several rounds; whether the levels are met."""
    found = [one_round(packing, image, target, mb, number % 2 == 1) for number in range(rounds)]
    ratio = statistics.median(each.flash / each.dd for each in found)
    direct = statistics.median(each.flash / each.dd_direct for each in found)
    memory = max(each.memory for each in found)
    dd, dd_direct, flash, reading = (
        statistics.median(getattr(each, name) for each in found) for name in ("dd", "dd_direct", "flash", "reading")
    )
    kind = "device" if target.is_block_device() else "file"
    print(
        f"{packing} to a {kind}: flash {flash:.0f}, dd {dd:.0f}, dd direct {dd_direct:.0f}, reading back {reading:.0f} "
        f"MB/s; median ratio {ratio:.2f} to dd (level {RATIO_MIN}), {direct:.2f} to dd direct; "
        f"{memory:.0f} MB (level {MEMORY_MB_MAX})",
        flush=True,
    )
    return ratio >= RATIO_MIN and memory < MEMORY_MB_MAX


def one_round(packing: str, image: Path, target: Path, mb: int, flash_first: bool) -> Round:
    """Write by both, in this or the other order."""
    flashed = flash_once(image, target) if flash_first else None
    dd, dd_direct = (dd_once(packing, image, target, mb, more) for more in ("", "oflag=direct"))
    return Round(dd, dd_direct, *(flashed or flash_once(image, target)))


def dd_once(packing: str, image: Path, target: Path, mb: int, more: str) -> float:
    """Give dd's rate, its start and the unpacker's included."""
    write = f"dd of={shlex.quote(str(target))} bs=4M conv=fsync status=none {more}"
    source = f"if={image}" if packing == "raw" else "iflag=fullblock"
    words = f"{UNPACKERS[packing]} {image} | {write} {source}" if packing != "raw" else f"{write} {source}"
    started = time.monotonic()
    subprocess.run(words, shell=True, check=True)
    rate = mb / (time.monotonic() - started)
    remove_file(target)
    return rate


def flash_once(image: Path, target: Path) -> tuple[float, float, float]:
    """Give the rates of writing and reading that flash says, and its memory."""
    words = [str(console_script("edge-board")), "flash", str(image), "--to", str(target), "--yes-really", str(target)]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(words, stderr=errors, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        errors.seek(0)
        said = errors.read()
    if status != 0:
        sys.exit(said)
    remove_file(target)
    found = re.findall(r"([\d.]+) ([MG])B/s$", said, re.MULTILINE)
    writing, reading = (float(rate) * (1000 if unit == "G" else 1) for rate, unit in found[-2:])
    return writing, reading, usage.ru_maxrss * 1024 / MB


def remove_file(target: Path) -> None:
    """Remove the target if it is a file: each round makes it anew."""
    if target.is_file():
        target.unlink()


if __name__ == "__main__":
    sys.exit(main())
