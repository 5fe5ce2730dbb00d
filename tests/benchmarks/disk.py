"""The disk itself: a bare loop of write and fdatasync, and a disk made as slow as a card.

`python -m tests.benchmarks.disk` is one bare loop in a process of its own, so that it can be bounded as a broker is.

Lives here: the loop, and the block device's bounds (cgroup v1 blkio, root alone). Must never come in: brokers.
Source: Linux' Documentation/admin-guide/cgroup-v1/blkio-controller; the SD association's application class A1.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

SEGMENT_BYTES = 64 << 20
BLKIO = Path("/sys/fs/cgroup/blkio")


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that so many percent do not exceed; 0 without values."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)] if ordered else 0.0


def latency_figures(latencies_ms: Sequence[float]) -> dict[str, float]:
    """Median and 99th percentile."""
    return {f"p{percent}_ms": percentile(latencies_ms, percent) for percent in (50, 99)}


def bare_loop(directory: Path, round_bytes: int, files: int, seconds: float) -> dict[str, float]:
    """Write a round's bytes to `files` files, fdatasync each, again; MB/s and the times of the syncs in ms."""
    share = max(round_bytes // files, 1)
    data = os.urandom(share)
    count, position = 0, 0
    syncs: list[float] = []
    descriptors = _new_files(directory, files)
    begin = now = time.perf_counter()
    try:
        while now < begin + seconds:
            if position + share > SEGMENT_BYTES and position:
                _close(descriptors)
                descriptors, position = _new_files(directory, files), 0
            for descriptor in descriptors:
                os.pwrite(descriptor, data, position)
            for descriptor in descriptors:
                start = time.perf_counter()
                os.fdatasync(descriptor)
                syncs.append((time.perf_counter() - start) * 1000)
            position += share
            count += 1
            now = time.perf_counter()
    finally:
        _close(descriptors)
    return {
        "mb_per_s": count * share * files / (now - begin) / 1e6,
        "rounds_per_s": count / (now - begin),
        "sync_p50_ms": percentile(syncs, 50),
        "sync_p99_ms": percentile(syncs, 99),
    }


def _new_files(directory: Path, files: int) -> list[int]:
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC
    return [os.open(directory / f"bare-{number}", flags, 0o640) for number in range(files)]


def _close(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


class Bounds:
    """What processes may write to one block device; nothing is bounded when `group` is None."""

    def __init__(self, group: Path | None) -> None:
        self._group = group

    def hold(self, pid: int) -> None:
        """Bound a process and all its threads."""
        if self._group is not None:
            (self._group / "cgroup.procs").write_text(str(pid))


@contextmanager
def slow_disk(directory: Path, mb_per_s: float, writes_per_s: int) -> Iterator[Bounds]:
    """A control group whose processes write no faster to the disk that holds `directory`.

    What a process syncs itself is bounded; what the kernel writes back by itself is not. RuntimeError says what is
    missing.
    """
    group = BLKIO / f"drupelet-bench-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        raise RuntimeError(
            f"{BLKIO} cannot be used ({error.strerror}): a slow disk needs root and cgroup v1; --no-card goes without"
        ) from None
    try:
        device = _device(directory)
        (group / "blkio.throttle.write_bps_device").write_text(f"{device} {int(mb_per_s * 1e6)}")
        (group / "blkio.throttle.write_iops_device").write_text(f"{device} {writes_per_s}")
        yield Bounds(group)
    finally:
        group.rmdir()


def _device(directory: Path) -> str:
    """The whole disk that holds a directory, as MAJOR:MINOR."""
    number = directory.stat().st_dev
    place = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve()
    return ((place.parent if (place / "partition").exists() else place) / "dev").read_text().strip()


def bare(directory: Path, round_bytes: int, files: int, seconds: float, bounds: Bounds) -> dict[str, float]:
    """The bare loop in a process of its own, bounded as the brokers are."""
    with tempfile.TemporaryDirectory(dir=directory) as place:
        command = [sys.executable, "-m", "tests.benchmarks.disk", place, str(round_bytes), str(files), str(seconds)]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            bounds.hold(child.pid)
            output, _ = child.communicate("go\n", timeout=seconds + 120)
        finally:
            if child.poll() is None:
                child.kill()
            child.wait()
        if child.returncode != 0:
            raise RuntimeError(f"the bare loop ended with exit status {child.returncode}")
    found: dict[str, float] = json.loads(output)
    return found


def main() -> int:
    """Be one bare loop."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("round_bytes", type=int)
    parser.add_argument("files", type=int)
    parser.add_argument("seconds", type=float)
    options = parser.parse_args()
    sys.stdin.readline()
    print(json.dumps(bare_loop(options.directory, options.round_bytes, options.files, options.seconds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
