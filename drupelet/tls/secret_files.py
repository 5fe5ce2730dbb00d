"""Read secrets from files, and check their permissions; never print them.

A secret is in a file of its own, never in an argument or the environment, which every user of the host can list.
systemd's credentials (`LoadCredential=`) are such files, below /run/credentials/UNIT.
Does not contain: the use of a secret.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING

from drupelet.errors import ConfigurationError, reason
from drupelet.printable import shell_path
from drupelet.tls.file_reads import read_named

if TYPE_CHECKING:
    from pathlib import Path

SECRET_BYTES_MAX = 65_536
_NOT_ALLOWED = stat.S_IWGRP | stat.S_IRWXO  # its group may read it, as the service's own user often is in that alone


class Secret:
    """A secret that is read at each use, so that the next connection uses a new one."""

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read

    def text(self) -> str:
        """Return the secret. ConfigurationError where it cannot be read."""
        return self._read()

    def __repr__(self) -> str:
        return "[hidden]"


def check_private(path: str | Path, named: str) -> None:
    """Refuse a file that other users of this host may read or change; `named` is its key, for the ConfigurationError.

    A link or a pipe is accepted: its target counts.
    """
    try:
        status = os.stat(path)
    except OSError as error:
        raise ConfigurationError(f"{named} is {path}, which cannot be read: {reason(error)}.") from error
    check_status(status, path, named)


def check_status(status: os.stat_result, path: str | Path, named: str) -> None:
    """Check an open file as `check_private` does: fstat describes the opened file, not the present path."""
    mode = status.st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
        raise ConfigurationError(f"{named} is {path}, which is no file: name the file.")
    if said := exposure(status, path):
        raise ConfigurationError(f"{named} is {path}, which {said}.")
    _check_owner(status, path, named)


def check_unchangeable(status: os.stat_result, path: str | Path, named: str) -> None:
    """Refuse an open file that others than its owner may change; they may read it. ConfigurationError as above.

    For a file that says who may do what: it has no secret, and who writes it decides. A pipe is refused.
    """
    if not stat.S_ISREG(status.st_mode):
        raise ConfigurationError(f"{named} is {path}, which is no file: name the file.")
    if said := _changeable(status, path):
        raise ConfigurationError(f"{named} is {path}, which {said}.")


def changeable(path: str | Path, named: str, *, of_other_service: bool = False) -> str:
    """Return a sentence about a file that others than its owner may change, without its full stop; empty: they may not.

    For a file with CAs: who changes it decides who is believed. A link's target counts. The owner does not count of a
    file `of_other_service`. Empty also for a file that cannot be looked at, which its reader tells of.
    """
    try:
        status = os.stat(path)
    except OSError:
        return ""
    if not stat.S_ISREG(status.st_mode):
        return ""
    said = _writable(status, path) if of_other_service else _changeable(status, path)
    return f"{named} is {path}, which {said}" if said else ""


def _changeable(status: os.stat_result, path: str | Path) -> str:
    return _writable(status, path) or _owned_by_another(status)


def _writable(status: os.stat_result, path: str | Path) -> str:
    if not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return ""
    return f"other users of this host may change: `chmod go-w {shell_path(path)}`"


def _check_owner(status: os.stat_result, path: str | Path, named: str) -> None:
    if said := _owned_by_another(status):
        raise ConfigurationError(f"{named} is {path}, which {said}.")


def _owned_by_another(status: os.stat_result) -> str:
    if status.st_uid in _owners():
        return ""
    return (
        f"belongs to another user (uid {status.st_uid}), who may change it: chown it to the service's user, or to root"
    )


def exposure(status: os.stat_result, path: str | Path) -> str:
    """Return how other users of this host may use a secret file, with the command that ends it; empty: they may not.

    Its owner does not count, as the file may belong to another service.
    """
    if not status.st_mode & _NOT_ALLOWED:
        return ""
    return f"other users of this host may use: `chmod g-w,o= {shell_path(path)}`"


def _owners() -> set[int]:
    """Root, this process's user, and who called sudo."""
    owners = {0, os.geteuid()}
    caller = os.environ.get("SUDO_UID", "")
    return owners | {int(caller)} if os.geteuid() == 0 and caller.isdecimal() else owners


def first_line(path: str | Path, named: str, wait_s: float | None = None) -> str:
    """The first line of a private file, without its end. ConfigurationError where it cannot be read, or is empty.

    `wait_s` bounds the wait for a pipe, see file_reads.py.
    """
    return lines_of(path, named, wait_s)[0]


def lines_of(path: str | Path, named: str, wait_s: float | None = None) -> list[str]:
    """Return the lines of a private file without their ends, the first is not empty. ConfigurationError, as above."""

    def check(status: os.stat_result) -> None:
        check_status(status, path, named)

    try:
        text = read_named(path, SECRET_BYTES_MAX, check=check, wait_s=wait_s).decode()
        lines = [line.removesuffix("\r") for line in text.split("\n")]
    except OSError as error:
        raise ConfigurationError(f"{named} is {path}, which cannot be read: {reason(error)}.") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{named} is {path}, which is not UTF-8: save it as UTF-8.") from error
    if not lines[0]:
        raise ConfigurationError(f"{named} is {path}, which is empty: write the secret on its first line.")
    return lines
