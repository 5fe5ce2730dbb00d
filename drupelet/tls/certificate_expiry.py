"""Report problems of a client's certificates in its /health, while it still connects.

| a file | counts as ending |
|---|---|
| the client's own certificate and its chain of CAs | with the first of them |
| the CAs that it trusts | with the last of them: until then it trusts one |

A file of CAs that other users of the host may change is named, too: they could add a CA.

The peer's /health has the peer's own certificate. Does not contain: connections, refusals.
"""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable, Iterable

from drupelet.errors import reason
from drupelet.host.file_identity import MISSING, file_identity
from drupelet.tls.certificates import certificates_in
from drupelet.tls.file_reads import AT_ONCE_S, read_named
from drupelet.tls.secret_files import changeable

SOON_S = 60 * 86_400
Path = str | pathlib.Path
FILE_BYTES_MAX = 4 << 20  # a system's whole list of CAs has 200 KB


class CertificateEnds:
    """The files of a client's connections; it costs nothing without TLS."""

    def __init__(self) -> None:
        self._files: list[WatchedFile] = []

    def watch(self, ca: tuple[str, Path | None], own: tuple[str, Path | None]) -> None:
        """Watch one connection's files, each with the key that names it; None: there is none."""
        self._files += [
            WatchedFile(name, path, is_own=is_own)
            for (name, path), is_own in ((own, True), (ca, False))
            if path is not None
        ]

    def notes(self) -> list[str]:
        """Return what a person should know now, a sentence each."""
        if not self._files:
            return []
        from drupelet.tls.contexts import latest_s  # noqa: PLC0415 - ssl takes 2 MB, and is there with the first connection

        now_s = latest_s()
        return [note for file in self._files for note in (file.note(now_s), file.changeable()) if note]


class WatchedFile:
    """A PEM file, `name` as its configuration names it, which is read again when it has changed."""

    def __init__(self, name: str, path: Path, *, is_own: bool) -> None:
        """`is_own`: the client's own certificate, else CAs that it trusts."""
        self._name = name
        self._path = path
        self._is_own = is_own
        self._choose: Callable[[Iterable[int]], int] = min if is_own else max
        self._identity = MISSING
        self._end_s: int | None = None
        self._problem = ""

    def note(self, now_s: float) -> str:
        """Return what a person should know at this moment, empty: nothing."""
        self._read_if_changed()
        if self._problem:
            return f"{self._name} {self._path} {self._problem}"
        if self._end_s is None or self._end_s - now_s > SOON_S:
            return ""
        verb = "ends" if self._end_s > now_s else "ended"
        return f"the certificate in {self._name} {self._path} {verb} {_day(self._end_s)}: put a new one there"

    def changeable(self) -> str:
        """Return the sentence that others may change the trusted CAs, else empty."""
        return "" if self._is_own else changeable(self._path, self._name)

    def _read_if_changed(self) -> None:
        try:
            identity = file_identity(self._path)
            if identity == self._identity != MISSING:
                return
            content = read_named(self._path, FILE_BYTES_MAX, wait_s=AT_ONCE_S)
            ends = [each.end_s for each in certificates_in(content)]
            self._identity, self._end_s, self._problem = identity, self._choose(ends) if ends else None, ""
        except OSError as error:
            self._identity, self._problem = MISSING, f"cannot be read: {reason(error)}"
        except ValueError:
            self._identity, self._problem = identity, "has a certificate that cannot be read"


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))
