"""The file of users and ACLs as a command opens it.

Lives here: that, waiting for another command, and for the cluster where a board is a member of one. Must never come
in: what the commands do.
"""

from __future__ import annotations

import os
import sys

from drupelet.errors import CommandFailed, ConfigurationError, reason
from edge_broker.clock import SystemClock
from edge_broker.security.state import Wanted
from edge_broker.storage.filesystem import Disk
from edge_broker.storage.security_store import SecurityStore

LOOKS_MAX = 200


def open_store(data_dir: str, *, make: bool) -> SecurityStore:
    """The store of a data directory, which is made where it is missing if `make`; CommandFailed: it is damaged."""
    disk, clock = Disk(), SystemClock()
    if make and not os.path.lexists(data_dir):
        try:
            disk.make_directory(data_dir)
        except OSError as error:
            raise ConfigurationError(f"--data-dir {data_dir} cannot be made: {reason(error)}") from None
        print(f"{data_dir} is new: no broker has served it yet", file=sys.stderr)
    if not os.path.isdir(data_dir):
        raise ConfigurationError(f"--data-dir {data_dir} is no directory: name the one that the broker serves")
    store = SecurityStore.open(disk, data_dir, clock.new_bytes, clock.pause)
    if store.state.damage:
        raise CommandFailed(f"users and ACLs cannot be read: {store.state.damage}")
    if store.state.exposed:
        print(f"edge-broker: {store.state.exposed}", file=sys.stderr)
    return store


def wait_until_done(store: SecurityStore) -> None:
    """Where users and ACLs are a cluster's: return once the board has had a change made there. CommandFailed.

    LOOKS_MAX times it is looked, with pauses of 50 ms: the board may not run, or reach no ZooKeeper.
    """
    looks, clock = 0, SystemClock()
    while store.state.wanted != Wanted():
        if looks == LOOKS_MAX:
            raise CommandFailed(
                "the cluster of this data directory does not have the change yet, as the broker of the directory does "
                "not run, does not reach ZooKeeper, or says in /health why; it is written down, and made once it can be"
            )
        looks += 1
        clock.pause()
        store.reread()
    if store.state.damage:
        raise CommandFailed(f"users and ACLs cannot be read: {store.state.damage}")
