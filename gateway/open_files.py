"""SYNC: the limit of open files, raised to what the followed files may need at most. Source: getrlimit(2).

systemd's default is 1,024, which it lets a service raise. The gateway uses epoll and poll, never select(2), which
bounds descriptors to 1,023.
"""

from __future__ import annotations

import resource
from collections.abc import Sequence

from gateway.config import FileConfig
from gateway.sources.family import FINISHED_HELD_MAX, HELD_MAX

OTHERS_MAX = 256  # connections, clients of /metrics, the journal's files, Python's own
EACH_MAX = HELD_MAX + FINISHED_HELD_MAX + 2  # of a path, with a copy that is compared and the state that is saved


def open_files_max(files: Sequence[FileConfig]) -> int:
    """Return how many files the gateway may have open at a time."""
    return OTHERS_MAX + EACH_MAX * sum(file.files_max if file.is_pattern else 1 for file in files)


def raise_limit(count: int) -> None:
    """Raise the soft limit to `count`, as far as the hard limit lets it; never lower it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def limit_notices(files: Sequence[FileConfig]) -> list[str]:
    """Return a sentence where the hard limit is below what the files may need."""
    needed, hard = open_files_max(files), resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY or needed <= hard:
        return []
    return [
        f"[[files]] may need {needed} open files and the limit is {hard}: set LimitNOFILE={needed}, or lower files_max"
    ]
