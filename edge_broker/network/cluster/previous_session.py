"""End the ZooKeeper session of a broker's previous process at a start, instead of waiting until it expires.

A killed broker is registered until its session ends: its partitions have no leader, and it cannot register again.
Where it is started again before that, the lock of its data directory says that the former process is dead, and the
file `zookeeper-session` (0600) has the session's id and password, by which ZooKeeper lets anybody go on with it.

| the file | then |
|---|---|
| is of this boot and this directory | the session is gone on with, and closed; one that has expired is none |
| is of another boot or directory, as after a power loss, or on a copy | nothing: another broker may have that session |
| is missing, as after a clean stop, or damaged | nothing: the session expires |

Contains: the file, and the closing. Does not contain: what a session is for, the session of this start.
Source: ZooKeeper Programmer's Guide, sessions.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from edge_broker.errors import StorageFault
from edge_broker.network.log_lines import log_line
from edge_broker.storage.files.atomic_files import encode_state, read_state, replace
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.storage.files.filesystem import FileSystem

FILE = KIND = "zookeeper-session"
TRY_S = 5.0


class Session(NamedTuple):
    """A session, and the place where its process ran."""

    place: str
    session_id: int
    password: bytes


def place_of(data_dir: str, boot_id: str) -> str:
    """The boot, and the directory by device and inode: a copy has others, and its lock says nothing of the first."""
    found = os.stat(data_dir)
    return f"{boot_id}/{found.st_dev:x}/{found.st_ino:x}"


def read_session(fs: FileSystem, data_dir: str) -> Session | None:
    """Return the contents of the file; None: it does not exist, or cannot be read."""
    try:
        ((place, session_id, password),) = read_state(fs, f"{data_dir}/{FILE}", KIND)
        return Session(place, int(session_id, 16), bytes.fromhex(password))
    except FileNotFoundError:
        return None
    except (StorageFault, OSError, ValueError) as error:
        log_line("warning", "previous_session_unknown", error=error)
        return None


@runs_in("files")
def write_session(fs: FileSystem, data_dir: str, session: Session) -> None:
    """Replace the file; without it the next start waits."""
    line = f"{session.place} {session.session_id:x} {session.password.hex()}"
    try:
        replace(fs, data_dir, FILE, encode_state(KIND, 1, [line]), private=True)
    except OSError as error:
        log_line("warning", "session_not_stored", error=error)


@runs_in("files")
def forget_session(fs: FileSystem, data_dir: str) -> None:
    """Remove the file: the session is closed."""
    with suppress(OSError):  # what stays names a session that is none
        fs.remove(f"{data_dir}/{FILE}")


def end_session(connect: str, timeout_ms: int, session: Session) -> None:
    """Close it, if there still is one; an ensemble that does not answer lets it expire. For a thread: TRY_S at most."""
    from kazoo.client import KazooClient  # noqa: PLC0415

    # not of the logging tree; that the session has expired is no error
    silent = logging.Logger("former_session", logging.CRITICAL)
    client = KazooClient(
        hosts=connect.partition("/")[0],
        timeout=timeout_ms / 1000,
        client_id=(session.session_id, session.password),
        logger=silent,
    )
    try:
        client.start(TRY_S)
        ended = client.client_id is not None and client.client_id[0] == session.session_id
        client.stop()
        if ended:
            log_line("info", "previous_session_ended", session=f"{session.session_id:x}")
    except Exception as error:  # noqa: BLE001 - no answer in time, or a bug: the session expires
        log_line("warning", "previous_session_not_ended", error=repr(error))
    finally:
        client.close()
