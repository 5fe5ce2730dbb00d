"""Outcomes of tests that run in a pytest of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAD = """
import gc, logging, logging.config, os, pathlib, resource, signal, socket, subprocess, sys, tempfile, threading
import pytest
from tests.support import left_over, processes
left_over.GRACE_S = 0.2
KEPT = []
"""


def outcomes(tmp_path: Path, text: str, *options: str) -> tuple[str, dict[str, int]]:
    """Run the tests of a text; return what pytest printed, and how many tests had each outcome."""
    (tmp_path / "test_leaves.py").write_text(HEAD + textwrap.dedent(text))
    words = ["-q", "-p", "no:cacheprovider", "-p", "tests.support.as_found", "--rootdir", str(tmp_path), str(tmp_path)]
    words += options
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stdout.splitlines()[-1]
    return done.stdout + done.stderr, {
        kind.rstrip("s"): int(number) for number, kind in re.findall(r"(\d+) (passed|failed|errors?)", last)
    }
