"""How many connections clients may have open: `max.connections`, or fewer where the limit of open files is lower.

| descriptors of the limit | for |
|---|---|
| a half, `FILES_MAX` at most | segments' files (storage/segment/open_file_cache.py) |
| `OTHERS_MAX` | handshakes in progress, clients of /metrics, links to other brokers and ZooKeeper, files of its own |
| the rest, `CONNECTIONS_MIN` at least | clients |

A broker without a descriptor left takes no connection, of any client, and cannot open its own files.
Does not contain: which connection is refused or closed (server/listener_server.py).
"""

from __future__ import annotations

from typing import NamedTuple

from edge_broker.storage.segment.open_file_cache import FILES_MAX, files_share

OTHERS_MAX = 192
CONNECTIONS_MIN = 16


class ConnectionBound(NamedTuple):
    """How many connections may be open, and why no more."""

    most: int
    reason: str
    """For a connection that is refused."""
    note: str
    """For a person who set more than there is room for; else empty."""


def open_file_limit_for(connections: int) -> int:
    """Return the limit of open files that leaves so many connections in addition to everything else."""
    return min(connections + OTHERS_MAX + FILES_MAX, 2 * (connections + OTHERS_MAX))


def connection_bound(wanted: int, limit: int) -> ConnectionBound:
    """Return the bound for `max.connections` = `wanted` in a process that may have `limit` files open."""
    room = max(limit - files_share(limit) - OTHERS_MAX, CONNECTIONS_MIN)
    if wanted <= room:
        return ConnectionBound(wanted, f"max.connections={wanted}", "")
    text = f"the limit of {limit} open files has room for {room} connections"
    remedy = f"set LimitNOFILE={open_file_limit_for(wanted)}, or lower max.connections"
    note = f"{text}, not for max.connections={wanted}: {remedy}"
    return ConnectionBound(room, text, note)
