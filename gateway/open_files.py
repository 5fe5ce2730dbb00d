"""SYNC: compute how many open files the gateway may need; warn if the limit is lower."""

from __future__ import annotations

from collections.abc import Sequence

from drupelet.host.descriptors import hard_limit
from gateway.config import FileConfig
from gateway.sources.files.family import FINISHED_HELD_MAX, HELD_MAX

OTHERS_MAX = 256  # connections, clients of /metrics, the journal's files, Python's own
EACH_MAX = HELD_MAX + FINISHED_HELD_MAX + 2  # for each path, with a copy under comparison and the state file


def open_files_max(files: Sequence[FileConfig]) -> int:
    """Return how many files the gateway may have open at a time."""
    return OTHERS_MAX + EACH_MAX * sum(file.files_max if file.is_pattern else 1 for file in files)


def limit_notices(files: Sequence[FileConfig]) -> list[str]:
    """Return a sentence if the hard limit is below what the files may need."""
    needed, hard = open_files_max(files), hard_limit()
    if needed <= hard:
        return []
    return [
        f"[[files]] may need {needed} open files and the limit is {hard}: set LimitNOFILE={needed}, or lower files_max"
    ]
