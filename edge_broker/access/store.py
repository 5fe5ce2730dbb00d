"""Open the file of users and ACLs for a command.

Contains: the command's user for the security log, the waits for another command and for the cluster of a member.
Does not contain: what the commands do.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from drupelet.errors import CommandFailed, ConfigurationError, reason
from drupelet.printable import name_text
from edge_broker.clock import SystemClock
from edge_broker.security.changes import COMMAND, Author
from edge_broker.security.state import WantedSecurity
from edge_broker.storage.files.filesystem import Disk
from edge_broker.storage.metadata.security_log import FAILED_EVENT, SecurityLog
from edge_broker.storage.metadata.security_store import SecurityStore

LOOKS_MAX = 200
NO_LOGIN_UID = 2**32 - 1


def _author() -> Author:
    """Return who runs this command: its uid, the user of sudo, and the uid that logged in, as the kernel has it."""
    found: dict[str, object] = {**COMMAND, "uid": os.getuid()}
    if sudo_user := os.environ.get("SUDO_USER"):
        found["sudo_user"] = sudo_user[:256]
    try:
        with open("/proc/self/loginuid", encoding="ascii") as file:
            login_uid = int(file.read())
    except (OSError, ValueError):  # a kernel without audit
        return found
    return found if login_uid == NO_LOGIN_UID else {**found, "login_uid": login_uid}


class _UnloggedEvents:
    """Prints the events that the security log could not take: the command has no other log."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def __call__(self, _level: str, event: str, fields: Mapping[str, object]) -> None:
        pairs = " ".join(f"{name}={name_text(value)}" for name, value in fields.items())
        self._lines.append(f"edge-broker: {event} {pairs}")
        if event == FAILED_EVENT:
            print(*self._lines, sep="\n", file=sys.stderr)


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
    log = SecurityLog(disk, data_dir, clock.wall_ms)
    log.echo = _UnloggedEvents()
    store = SecurityStore.open(disk, data_dir, clock.new_bytes, clock.pause, log, _author())
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
    while store.state.wanted != WantedSecurity():
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
