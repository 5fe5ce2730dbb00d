"""When each user logged in first, and last to the day: the file `log-ins`, replaced whole.

| field of a line | content |
|---|---|
| 1 | `credential_tag` of the user's credentials, so that a new password or a user made again counts as not used |
| 2 | the first log-in, milliseconds since 1970 by this board's clock |
| 3 | the last log-in, at most `DAY_MS` older than the real one |
| 4… | the user's name as JSON, which may contain spaces |

The broker alone writes the file: at the first log-in by a credential, and at most once a day for each user after that.
A rotation of passwords reads it: an old log-in ends once the new one was used. A lost file only delays that end.

Does not contain: who may log in (security_store.py), what ends a log-in.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from edge_broker.errors import StorageFault
from edge_broker.security.state import SecurityState, credential_tag
from edge_broker.storage.files.atomic_files import encode_state, fault_of, read_state, replace
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.storage.files.filesystem import FileSystem

NAME = "log-ins"
KIND = "log-ins"
VERSION = 1
DAY_MS = 86_400_000


class LogInTimes(NamedTuple):
    """The log-ins by one credential: its tag, the first and the last of them in milliseconds since 1970."""

    tag: str
    first_ms: int
    last_ms: int


def read_log_in_times(fs: FileSystem, data_dir: str) -> dict[str, LogInTimes]:
    """Return the log-ins of each user; none without a file. StorageFault: it is damaged or cannot be read."""
    path = f"{data_dir}/{NAME}"
    try:
        lines = read_state(fs, path, KIND, VERSION)
        return {
            str(json.loads(" ".join(name))): LogInTimes(tag, int(first), int(last)) for tag, first, last, *name in lines
        }
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise StorageFault(path, 0, f"is no file of log-ins ({error}); remove it") from None
    except OSError as error:
        raise fault_of(error, path, 0) from error


@runs_in("files")
def write_log_in_times(fs: FileSystem, data_dir: str, times: Mapping[str, LogInTimes]) -> None:
    """Replace the file, synced. StorageFault."""
    lines = [
        f"{one.tag} {one.first_ms} {one.last_ms} {json.dumps(name, ensure_ascii=True)}"
        for name, one in sorted(times.items())
    ]
    try:
        replace(fs, data_dir, NAME, encode_state(KIND, VERSION, lines), private=True)
    except OSError as error:
        raise fault_of(error, f"{data_dir}/{NAME}", 0) from error


def valid_times(times: Mapping[str, LogInTimes], state: SecurityState) -> dict[str, LogInTimes]:
    """Return the entries whose user still has the credentials that they were made by."""
    return {
        name: one for name, one in times.items() if name in state.users and one.tag == credential_tag(state.users[name])
    }
