"""The file of the deny list: read at the start and whenever it changes; the last good list holds meanwhile.

| found | then |
|---|---|
| a list | it holds |
| a line that cannot be read, or more than BYTES_MAX | the list from before holds; log and /health name the line |
| no file, one that others may change, one that cannot be read | the same; it is retried at each look |

At the start each of the latter refuses the broker. Contains: reading of that file. Does not contain: what its lines
mean (security/deny_list.py), connections (dispatch/unauthenticated_connections.py).
"""

from __future__ import annotations

import os

from drupelet.errors import ConfigurationError, reason
from drupelet.host.file_identity import MISSING, file_identity
from drupelet.tls.secret_files import check_unchangeable
from edge_broker.configuration.security_keys import DENY_LIST
from edge_broker.security.deny_list import DenyList, parse_deny_list
from edge_broker.thread_checks import runs_in

LOOK_S = 1.0
BYTES_MAX = 262_144


class DenyListFile:
    """The list of a file; `problem` says in a sentence why the file is refused, empty: it is not.

    ConfigurationError where the file cannot be used at the start.
    """

    def __init__(self, path: str) -> None:
        self.problem = ""
        self._path = path
        self._seen = file_identity(path)
        self.current = self._parse(self._read())

    @runs_in("files")
    def read_if_changed(self) -> bool:
        """Read the file again if it has changed; True when there is another list, or another problem."""
        identity = file_identity(self._path)
        if identity == self._seen != MISSING:
            return False
        before = self.current, self.problem
        self._seen = MISSING
        try:
            data = self._read()
            self._seen = identity
            self.current, self.problem = self._parse(data), ""
        except ConfigurationError as error:
            self.problem = f"{str(error).removesuffix('.')}; until then the list from before holds"
        return (self.current, self.problem) != before

    def _read(self) -> bytes:
        """Its bytes; ConfigurationError where they cannot be had, or where others may change them."""
        try:
            # a pipe has no end that could be waited for: it is refused, not read
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                check_unchangeable(os.fstat(descriptor), self._path, DENY_LIST)
                with os.fdopen(os.dup(descriptor), "rb") as file:
                    return file.read(BYTES_MAX + 1)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise ConfigurationError(
                f"{DENY_LIST} is {self._path}, which cannot be read: {reason(error)}; put the list there"
            ) from None

    def _parse(self, data: bytes) -> DenyList:
        if len(data) > BYTES_MAX:
            raise ConfigurationError(
                f"{DENY_LIST} is {self._path}, which has more than {BYTES_MAX} bytes; "
                "take out certificates that have ended, or sign the others by a new CA"
            )
        try:
            return parse_deny_list(data)
        except ValueError as error:
            raise ConfigurationError(f"{DENY_LIST} is {self._path}, of which {error}") from None
