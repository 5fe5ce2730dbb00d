"""The limit of open files (descriptors), of which each file and each connection takes one. Source: getrlimit(2).

systemd's default is 1,024, which it lets a service raise. The parts use epoll and poll, never select(2), which bounds
descriptors to 1,023. Does not contain: how many a part needs.
"""

from __future__ import annotations

import resource

NO_LIMIT = 1 << 30
"""More than any kernel allows (fs.nr_open)."""


def raise_limit(count: int) -> int:
    """Raise the soft limit to `count`, as far as the hard limit lets it, never lower it; the soft limit then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(count, as_number(hard))
    if as_number(soft) < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(as_number(soft), wanted)


def hard_limit() -> int:
    """Return how far the soft limit may be raised without root."""
    return as_number(resource.getrlimit(resource.RLIMIT_NOFILE)[1])


def as_number(limit: int) -> int:
    """Return a limit as a number that can be compared; RLIM_INFINITY is -1."""
    return NO_LIMIT if limit == resource.RLIM_INFINITY else limit
