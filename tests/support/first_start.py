"""The order of an ensemble's first start: every server serves, its data is synced, and only then brokers come.

ZooKeeper syncs its transaction log and its epochs, and not the first snapshot. A power cut that takes `snapshot.0` and
leaves transactions makes a server end for good: "No snapshot found, but there are log entries". Without transactions
it starts as an empty one. So nothing may be written before the snapshot is on the disk. CLUSTER.md has the same order
as commands.

Contains: that order. Does not contain: processes, brokers, clients.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from tests.support.waiting import wait_until

Say = Callable[[str], object]


class Server(Protocol):
    """One server of an ensemble."""

    name: str
    ready_s: float
    data: Path

    def spawn(self) -> None:
        """Start it."""

    def serves(self) -> bool:
        """Whether it has a leader, or is it."""

    def log_tail(self) -> str:
        """The last lines of its log."""


def sync_files(directory: Path) -> frozenset[Path]:
    """Sync every file below a directory, and every name; return the files.

    A file that its server removes meanwhile is left out.
    """
    synced = set()
    for place, _, names in os.walk(directory, topdown=False):
        for path in [*(Path(place, name) for name in sorted(names)), Path(place)]:
            try:
                _sync(path)
            except FileNotFoundError:
                continue
            if path != Path(place):
                synced.add(path)
    _sync(directory.parent)
    return frozenset(synced)


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def start_servers(servers: Sequence[Server], served: Callable[[Server], object] = lambda _: None) -> frozenset[Path]:
    """Start all servers, wait until each one serves, then sync their data; return the synced files.

    The order holds at every start: a power cut before the sync of the first one leaves an empty ensemble. A server that
    begins with an empty directory later has to be synced before it counts, too.
    """
    for server in servers:
        server.spawn()
    for server in servers:
        wait_until(server.serves, server.ready_s, f"{server.name} serves", seen=server.log_tail)
        served(server)
    return sync_data(servers)


def sync_data(servers: Iterable[Server]) -> frozenset[Path]:
    """Sync what all servers have written so far."""
    return frozenset[Path]().union(*(sync_files(server.data) for server in servers))
