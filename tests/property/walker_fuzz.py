"""`make fuzz-walker`: walk.c under AddressSanitizer and UBSan, held against what Python does for as long as one likes.

Each piece lies in memory of exactly its size, so that a byte read beyond it is caught. A failure prints the seed, and
SEED= begins there. `python -m tests.property.walker_fuzz --seconds N` compiles, and runs itself with the library.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from edge_broker.compiled import library
from edge_broker.compiled.library import CompiledRenumbering, CompiledWalk
from edge_broker.protocol.records_walk import PythonWalk
from edge_broker.protocol.renumbering import LyingPiece, renumber_in_python
from tests.support.records_walk import of_seed, outcome, pieces_of_seed

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
    library.open_renumbering(path)
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
        ours, theirs = renumbered(libc, number), renumbered_in_python(number)
        if ours != theirs:
            print(f"SEED={number}: {ours} by walk.c, {theirs} by Python")
            return 1
        number += 1
    print(f"{number - seed} areas, no difference, nothing for the sanitizers")
    return 0


def renumbered(libc: ctypes.CDLL, seed: int) -> object:
    """What walk.c makes of some pieces: a verdict and its place, or records, runs and times."""
    area, wanted = pieces_of_seed(seed)
    fields = b"".join(struct.pack("=3q", *piece) for piece in wanted)
    walk = CompiledRenumbering()
    walk._area_size, walk._pieces = len(area), len(wanted)
    walk._area, walk._wanted = libc.malloc(len(area)), libc.malloc(len(fields))
    ctypes.memmove(walk._area, bytes(area), len(area))
    ctypes.memmove(walk._wanted, fields, len(fields))
    place = ctypes.byref(walk)
    try:
        verdict = library._library.renumber(place)
        if verdict:
            return verdict, walk.piece, walk.record
        walk._out_size, walk._runs_max = walk.written, walk.runs
        walk._out, walk._run = libc.malloc(max(walk.written, 1)), libc.malloc(max(16 * walk.runs, 1))
        verdict = library._library.renumber(place)
        assert not verdict
        assert (walk.written, walk.runs) == (walk._out_size, walk._runs_max)
        records = ctypes.string_at(walk._out, walk.written)
        runs = tuple(struct.iter_unpack("=2q", ctypes.string_at(walk._run, 16 * walk.runs)))
        return records, walk.records, runs, walk.base_timestamp, walk.max_timestamp
    finally:
        for memory in (walk._area, walk._wanted, walk._out, walk._run):
            libc.free(memory)


def renumbered_in_python(seed: int) -> object:
    """The same by Python."""
    try:
        return tuple(renumber_in_python(*pieces_of_seed(seed), 0))
    except LyingPiece as lie:
        return lie.verdict, lie.piece, lie.record


if __name__ == "__main__":
    sys.exit(main())
