"""Read the kernel's counts of written bytes: by this process, and to the data directory's disk by all processes.

Contains: reading those two counters. Does not contain: guesses; where a counter cannot be had there is none.
Source: proc_pid_io(5), Linux's Documentation/block/stat.rst.
"""

from __future__ import annotations

import os

SECTOR_BYTES = 512  # of these counters, whatever the disk's own are
_SECTORS_WRITTEN = 6


def process_bytes(path: str = "/proc/self/io") -> int | None:
    """Bytes that this process made the kernel write to disks, what was taken back before left out; None: not told."""
    try:
        with open(path, encoding="ascii") as file:
            found = dict(line.split(": ") for line in file.read().splitlines())
        return int(found["write_bytes"]) - int(found["cancelled_write_bytes"])
    except (OSError, ValueError, KeyError):
        return None


def device_bytes(data_dir: str, devices: str = "/sys/dev/block") -> int | None:
    """Bytes written since its start to the disk that holds `data_dir`, journal and others' data too; None: no disk."""
    try:
        device = os.stat(data_dir).st_dev
        with open(f"{devices}/{os.major(device)}:{os.minor(device)}/stat", encoding="ascii") as file:
            return int(file.read().split()[_SECTORS_WRITTEN]) * SECTOR_BYTES
    except (OSError, ValueError, IndexError):
        return None
