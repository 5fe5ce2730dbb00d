"""Large buffers that are freed are the system's again, whatever was freed before."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
from pathlib import Path
from drupelet.host.heap import give_back_large_buffers, share_one_heap
{call}
MB = 1024 * 1024

def resident_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 // MB

def filled(size):
    return bytearray(b"x") * size

del [filled(24 * MB)][0]  # glibc takes its size for what is usual from now on
held = [(filled(MB), bytes(600)) for _ in range(40)]
before = resident_mb()
held = [small for _, small in held]
print(before - resident_mb())
"""


def given_back_mb(call: str) -> int:
    run = subprocess.run([sys.executable, "-c", SCRIPT.format(call=call)], check=True, capture_output=True, text=True)
    return int(run.stdout)


def test_what_is_large_is_given_back_when_it_is_freed():
    assert given_back_mb("share_one_heap(); give_back_large_buffers()") >= 38
