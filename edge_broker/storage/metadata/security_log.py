"""Appends the security log: who changed which right or user, and when super users logged in.

| file | lines | synced | kept |
|---|---|---|---|
| `security-changes.log` | each changed right and user | before the change holds | 4 MiB, and 4 older files |
| `security-admins.log` | each log-in of a super user | no | 1 MiB, and 1 older file |

A line has the form of the broker's own log, which gets it first. Older files are `<name>.1` (the newest) and so on.
Nothing that a client without such rights can bring about is in a file. Lines that cannot be written are kept, up to
`KEPT_MAX`, and written later; `problem` names them until then.

The broker and commands append to the same file: each line is one write at the end of the file.
Does not contain: which events there are (security/changes.py), the bounds of the other log lines
(network/audit_log.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from drupelet.observe.log_lines import log_line
from edge_broker.security.changes import Event
from edge_broker.storage.files.atomic_files import fault_of, write_all
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from edge_broker.storage.files.filesystem import FileSystem

CHANGES_NAME = "security-changes.log"
ADMINS_NAME = "security-admins.log"
CHANGES_BYTES_MAX, CHANGES_OLDER = 4 << 20, 4
ADMINS_BYTES_MAX, ADMINS_OLDER = 1 << 20, 1
CHUNK_BYTES = 1 << 18
KEPT_MAX = 2000  # lines, some 0.5 MB
FAILED_EVENT = "security-log-failed"
Echo = Callable[[str, str, Mapping[str, object]], None]


class _Kind(NamedTuple):
    """One file of the two: its name, the bounds of its rotation, and whether its lines are synced."""

    name: str
    bytes_max: int
    older: int
    synced: bool


_CHANGES = _Kind(CHANGES_NAME, CHANGES_BYTES_MAX, CHANGES_OLDER, synced=True)
_ADMINS = _Kind(ADMINS_NAME, ADMINS_BYTES_MAX, ADMINS_OLDER, synced=False)


class SecurityLog:
    """The two files of a data directory; used by the worker `files`, or by a command.

    `echo` gets level, event and fields of each line first, for the ordinary log. `problem` is one sentence while lines
    are missing in a file, else empty.
    """

    def __init__(self, fs: FileSystem, data_dir: str, wall_ms: Callable[[], int]) -> None:
        self.echo: Echo = lambda _level, _event, _fields: None
        self.problem = ""
        self._fs = fs
        self._data_dir = data_dir
        self._wall_ms = wall_ms
        self._kept: dict[_Kind, deque[bytes]] = {_CHANGES: deque(), _ADMINS: deque()}
        self._dropped = dict.fromkeys(self._kept, 0)
        self._faults = dict.fromkeys(self._kept, "")

    @runs_in("files")
    def write_changes(self, events: Sequence[Event]) -> None:
        """Return when the events are synced, or are kept for later and named by `problem`."""
        self._take(_CHANGES, events)

    @runs_in("files")
    def write_admins(self, events: Sequence[Event]) -> None:
        """Append log-ins of super users; not synced."""
        self._take(_ADMINS, events)

    @property
    def has_kept(self) -> bool:
        """Whether `retry` has something to do."""
        return bool(self.problem)

    @runs_in("files")
    def retry(self) -> None:
        """Try to append the lines that could not be written."""
        for kind, kept in self._kept.items():
            if kept:
                self._flush(kind)
        self._report_problem()

    def _take(self, kind: _Kind, events: Sequence[Event]) -> None:
        if not events:
            return
        for event, fields in events:
            self.echo("info", event, fields)
        kept = self._kept[kind]
        before = bool(kept)
        kept.extend(self._line("info", event, fields) for event, fields in events)
        self._flush(kind)
        while len(kept) > KEPT_MAX:
            kept.popleft()
            self._dropped[kind] += 1
        if self._faults[kind] and not before:
            self.echo("error", FAILED_EVENT, {"file": kind.name, "error": self._faults[kind]})
        self._report_problem()

    def _line(self, level: str, event: str, fields: Mapping[str, object]) -> bytes:
        return (log_line(self._wall_ms() / 1000, level, "edge-broker", event, fields) + "\n").encode(errors="replace")

    def _flush(self, kind: _Kind) -> None:
        """Append what is kept; what was appended is kept no more. A second line of the same is better than none."""
        kept = self._kept[kind]
        try:
            if self._dropped[kind]:
                lost = {"lines": self._dropped[kind], "reason": self._faults[kind]}
                self._append(kind, self._line("error", "security-log-incomplete", lost))
                self._dropped[kind] = 0
            for count, chunk in _chunks(kept):
                self._append(kind, chunk)
                for _ in range(count):
                    kept.popleft()
        except OSError as error:
            self._faults[kind] = str(fault_of(error, f"{self._data_dir}/{kind.name}", 0))
        else:
            self._faults[kind] = ""

    def _append(self, kind: _Kind, data: bytes) -> None:
        path = f"{self._data_dir}/{kind.name}"
        file = self._fs.append(path)
        size = file.size()
        if size and size + len(data) > kind.bytes_max:
            self._rotate(kind)
            file, size = self._fs.append(path), 0
        if size and bytes(file.read(1, size - 1)) != b"\n":  # a crash, or a full disk, cut the last line
            data = b"\n" + data
        write_all(file, data, size)
        if kind.synced:
            file.datasync()
            if not size:
                self._fs.sync_directory(self._data_dir)

    def _rotate(self, kind: _Kind) -> None:
        path = f"{self._data_dir}/{kind.name}"
        for number in range(kind.older, 0, -1):
            older = path if number == 1 else f"{path}.{number - 1}"
            if self._fs.exists(older):
                self._fs.rename(older, f"{path}.{number}")

    def _report_problem(self) -> None:
        missing = [
            f"{self._data_dir}/{kind.name} lacks {len(kept) + self._dropped[kind]} lines, which the broker's own log "
            f"has: {self._faults[kind]}"
            for kind, kept in self._kept.items()
            if self._faults[kind]
        ]
        self.problem = "; ".join(missing)


def _chunks(lines: Iterable[bytes]) -> list[tuple[int, bytes]]:
    """Return the lines in slices of some CHUNK_BYTES, each with their number."""
    chunks: list[tuple[int, bytes]] = []
    piece: list[bytes] = []
    size = 0
    for line in lines:
        piece.append(line)
        size += len(line)
        if size >= CHUNK_BYTES:
            chunks.append((len(piece), b"".join(piece)))
            piece, size = [], 0
    if piece:
        chunks.append((len(piece), b"".join(piece)))
    return chunks
