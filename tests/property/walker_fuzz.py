"""`make fuzz-walker`: walk.c under AddressSanitizer and UBSan, held against the Python walker for as long as one likes.

Each piece lies in memory of exactly its size, so that a byte read beyond it is caught. A failure prints the seed, and
SEED= begins there. `python -m tests.property.walker_fuzz --seconds N` compiles, and runs itself with the library.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from edge_broker.compiled import library
from edge_broker.compiled.library import CompiledWalk
from edge_broker.protocol.records_walk import PythonWalk
from tests.property.test_records_walk import of_seed, outcome

SOURCE = Path(__file__).parents[2] / "edge_broker/compiled/walk.c"
FLAGS = (
    "-g",
    "-O1",
    "-shared",
    "-fPIC",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-Wall",
    "-Wextra",
)
INSIDE = "DRUPELET_FUZZED_WALKER"


def main() -> int:
    """Compile with the sanitizers and fuzz in a process that has them loaded; 0 when nothing was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    options = parser.parse_args()
    if INSIDE in os.environ:
        return fuzz(os.environ[INSIDE], options.seed, options.seconds)
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/walk.so"
        subprocess.run(["cc", *FLAGS, "-o", path, str(SOURCE)], check=True)
        runtime = subprocess.run(["cc", "-print-file-name=libasan.so"], check=True, capture_output=True, text=True)
        environment = {
            **os.environ,
            INSIDE: path,
            "LD_PRELOAD": runtime.stdout.strip(),
            "ASAN_OPTIONS": "detect_leaks=0",  # Python's own, at its end
        }
        words = [sys.executable, "-m", "tests.property.walker_fuzz", f"--seconds={options.seconds}"]
        return subprocess.run([*words, f"--seed={options.seed}"], env=environment, check=False).returncode


def fuzz(path: str, seed: int, seconds: float) -> int:
    """Walk areas of one seed after another; 1 at the first that differs."""
    library.open_library(path)
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = (ctypes.c_size_t,)
    libc.free.argtypes = (ctypes.c_void_p,)
    feed = library._library.feed
    print(f"SEED={seed}", flush=True)
    end, number = time.monotonic() + seconds, seed
    while time.monotonic() < end:
        area, count, base, keys, times = of_seed(number)
        rnd = random.Random(number)
        cuts = sorted(rnd.randint(0, len(area)) for _ in range(rnd.choice((0, 0, 1, 3, 9))))
        walk = CompiledWalk.begin(base, count, keys, times)
        for begin, cut in zip([0, *cuts], [*cuts, len(area)], strict=True):
            place = libc.malloc(max(cut - begin, 1))
            ctypes.memmove(place, area[begin:cut], cut - begin)
            feed(ctypes.byref(walk), place, cut - begin, False)
            libc.free(place)
        feed(ctypes.byref(walk), None, 0, True)
        reference = PythonWalk(base, count, keys, times)
        reference.feed(area, last=True)
        if outcome(walk) != outcome(reference):
            print(f"SEED={number}: {outcome(walk)} by walk.c, {outcome(reference)} by PythonWalk")
            return 1
        number += 1
    print(f"{number - seed} areas, no difference, nothing for the sanitizers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
