"""`edge-broker user`: who may log in at the broker of a data directory.

Contains: from a password to what is kept of it, and what is printed. Does not contain: options and help
(user_arguments.py), a password among the arguments, in a line, or in the file.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping

from drupelet.errors import CommandFailed, ConfigurationError
from drupelet.quantities import quantity_text
from drupelet.tls.secret_files import first_line
from edge_broker.access.store import open_store, wait_until_done
from edge_broker.clock import SystemClock
from edge_broker.errors import Refusal, StorageFault
from edge_broker.output import time_text, write_json, write_table
from edge_broker.security.scram import MECHANISMS, SALT_BYTES, ScramCredential, new_credential
from edge_broker.security.state import SecurityState, check_new_user_name
from edge_broker.storage.files.filesystem import Disk
from edge_broker.storage.metadata.log_in_times import LogInTimes, read_log_in_times, valid_times

PASSWORD_BYTES_MAX = 1024
PRINCIPAL = "User:"


def run(options: argparse.Namespace) -> int:
    """Run one of the commands; its exit status. CommandFailed, ConfigurationError, StorageFault."""
    try:
        return {"add": _add, "list": _list, "remove": _remove, "restore": _restore}[options.action](options)
    except Refusal as refusal:
        raise CommandFailed(refusal.message) from refusal


def _add(options: argparse.Namespace) -> int:
    if options.name.startswith(PRINCIPAL):
        name = options.name.removeprefix(PRINCIPAL)
        raise ConfigurationError(f"{options.name} is a principal, as rights name it; the user is called {name}")
    try:
        check_new_user_name(options.name)
    except Refusal as refusal:
        raise ConfigurationError(refusal.message) from None
    is_new = not os.path.lexists(options.data_dir)
    store = None if is_new else open_store(options.data_dir, make=False)  # refuses before a password is typed
    credentials = _credentials(options.name, options.iterations, _password(options))
    store = store or open_store(options.data_dir, make=True)
    known = False

    def edit(state: SecurityState) -> SecurityState:
        nonlocal known
        known = options.name in state.users
        return state.with_user(options.name, credentials)

    store.change(edit)
    wait_until_done(store)
    print(f"{'changed' if known else 'added'}: {options.name}")
    return 0


def _credentials(name: str, iterations: int, password: str) -> Mapping[str, ScramCredential]:
    clock = SystemClock()
    return {
        mechanism.name: new_credential(mechanism, password, clock.new_bytes(SALT_BYTES), iterations)
        for mechanism in MECHANISMS.values()
    }


def _password(options: argparse.Namespace) -> str:
    """The password from a file, a terminal's prompt or the first line of the standard input."""
    if options.password_file is not None:
        password = first_line(options.password_file, "--password-file")
    elif sys.stdin.isatty():
        password = _prompt(options.name)
    else:
        try:
            password = sys.stdin.readline().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            raise ConfigurationError("the password on the standard input is not UTF-8; write it as UTF-8") from None
    if not password:
        raise ConfigurationError("the password is empty; write it on the first line of the standard input or a file")
    if len(password.encode(errors="replace")) > PASSWORD_BYTES_MAX or "\0" in password:
        raise ConfigurationError(f"the password has a zero character or more than {PASSWORD_BYTES_MAX} bytes")
    return password


def _prompt(name: str) -> str:
    from getpass import getpass  # noqa: PLC0415 - only for a password that is typed

    try:
        password = getpass(f"Password of {name}: ")
        again = getpass("Once more: ")
    except EOFError:
        raise CommandFailed("no password was typed; nothing was changed") from None
    if again != password:
        raise CommandFailed("the two passwords are not the same; nothing was changed")
    return password


def _list(options: argparse.Namespace) -> int:
    state = open_store(options.data_dir, make=False).state
    times = valid_times(_times(options.data_dir), state)
    columns = ("user", "mechanism", "iterations", "first_log_in", "last_log_in")
    rows = [
        (user, mechanism, one.iterations, *_log_ins(times.get(user)))
        for user, credentials in sorted(state.users.items())
        for mechanism, one in sorted(credentials.items())
    ]
    if options.json:
        for row in rows:
            write_json(dict(zip(columns, row, strict=True)))
    else:
        write_table(columns, rows, none="no users")
    return 0


def _times(data_dir: str) -> dict[str, LogInTimes]:
    try:
        return read_log_in_times(Disk(), data_dir)
    except StorageFault as fault:
        print(f"edge-broker: the log-ins cannot be read: {fault}", file=sys.stderr)
        return {}


def _log_ins(times: LogInTimes | None) -> tuple[str, str]:
    """The first log-in, and the day of the last one; "never" without any."""
    if times is None:
        return "never", "never"
    return time_text(times.first_ms), time_text(times.last_ms).partition("T")[0]


def _remove(options: argparse.Namespace) -> int:
    store = open_store(options.data_dir, make=False)

    def edit(state: SecurityState) -> SecurityState:
        if options.name not in state.users:
            raise CommandFailed(f"there is no user {options.name}; edge-broker user list shows those that are there")
        return state.with_user(options.name, {})

    store.change(edit)
    wait_until_done(store)
    print(f"removed: {options.name}")
    return 0


def _restore(options: argparse.Namespace) -> int:
    store = open_store(options.data_dir, make=False)
    try:
        users, acls = store.state.users, store.want_restored().acls
    except ValueError as error:
        raise ConfigurationError(f"{error}; name the data directory of a board of the cluster") from None
    wait_until_done(store)
    counts = f"{quantity_text(len(users), 'user')} and {quantity_text(len(acls), 'ACL')}"
    print(f"the cluster has {counts}, as this board had known them")
    return 0
