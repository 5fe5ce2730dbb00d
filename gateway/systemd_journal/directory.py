"""Find the journal files below one or more roots, and to which chain each belongs.

| path below a root | label | kind |
|---|---|---|
| `FILE` | the root's | the file's name without `@...` and suffix: `system`, `user-1000`, `remote-10.0.0.5` |
| `MACHINE/FILE`, `MACHINE.NAMESPACE/FILE` | the root's, and the directory | the same |

A chain is the files of one label, kind and sequence number id: journald or systemd-journal-remote writes them one after
another, and sequence numbers rise along it. A root or file that cannot be read is named, and the others are read.
Source: systemd's sd-journal.c, which reads the same directories.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from drupelet.errors import reason
from gateway.systemd_journal.file_format import Header, UnsupportedFileError, read_header

PERSISTENT, VOLATILE = Path("/var/log/journal"), Path("/run/log/journal")
_MACHINE_DIRECTORY = re.compile(r"[0-9a-f]{32}(\.[^/]+)?")
_FILE = re.compile(r"(?P<kind>[^@]+)(?P<archived>@[^/]*)?\.journal(?P<unclean>~)?")
_ARCHIVED_NAME = re.compile(r"@(?P<seqnum_id>[0-9a-f]{32})-(?P<head>[0-9a-f]{16})-[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class Root:
    """A directory with journal files: one machine's of this host's journal, or any that was named."""

    path: Path
    label: str
    is_volatile: bool = False
    only_machine: str | None = None  # whose directories are read, with its namespaces; None: all


@dataclass(frozen=True, slots=True)
class JournalFileInfo:
    """One file as its name, header and status show it."""

    path: Path
    label: str
    kind: str
    is_volatile: bool
    is_archived: bool
    inode: int
    header: Header

    @property
    def chain(self) -> str:
        """Return the name of its chain."""
        return f"{self.label}|{self.kind}|{self.header.seqnum_id}"

    @property
    def order(self) -> tuple[int, int]:
        """Return what sorts the files of a chain: the first sequence number, then the first time."""
        return self.head_seqnum, self.header.head_realtime_us

    @property
    def head_seqnum(self) -> int:
        """Return the first entry's sequence number, of a file without entries the least that it may get."""
        return self.header.head_seqnum if self.header.n_entries else self.header.tail_seqnum + 1

    @property
    def is_first(self) -> bool:
        """Return whether no file of the chain was before it."""
        return self.header.file_id == self.header.seqnum_id or self.head_seqnum == 1


@dataclass(frozen=True, slots=True)
class UnreadableFile:
    """A file that cannot be read; `head_seqnum` is what its name says, None if it says nothing."""

    path: Path
    label: str
    kind: str
    reason: str
    is_denied: bool
    seqnum_id: str | None
    head_seqnum: int | None


@dataclass(slots=True)
class Scan:
    """The state of all roots at one time."""

    chains: dict[str, list[JournalFileInfo]] = field(default_factory=dict)  # of files with sequence numbers, in order
    unreadable: list[UnreadableFile] = field(default_factory=list)
    labels: set[str] = field(default_factory=set)  # directories that exist and can be listed
    problems: list[str] = field(default_factory=list)
    file_count: int = 0


class Directories:
    """The roots; `scan` looks at them again."""

    def __init__(self, roots: Sequence[Root]) -> None:
        self._roots = roots
        self._archived: Mapping[Path, JournalFileInfo] = {}  # whose headers change no more

    @property
    def has_volatile(self) -> bool:
        """Return whether journald may copy entries from one of the roots to another."""
        return any(root.is_volatile for root in self._roots)

    def scan(self) -> Scan:
        """Return the files that exist now; a file that vanishes meanwhile is left out."""
        scan, archived = Scan(), {}
        for root in self._roots:
            for directory, label in self._directories(root, scan):
                paths = _list_files(directory, scan)
                if paths is None:
                    continue
                for path in paths:
                    info = self._info(path, label, root, scan)
                    if info is None:
                        continue
                    scan.file_count += 1
                    if info.is_archived:
                        archived[path] = info
                    if info.header.n_entries or info.header.tail_seqnum:
                        scan.chains.setdefault(info.chain, []).append(info)
                scan.labels.add(label)
        for files in scan.chains.values():
            files.sort(key=lambda info: info.order)
        self._archived = archived
        return scan

    def _directories(self, root: Root, scan: Scan) -> Iterator[tuple[Path, str]]:
        try:
            names = sorted(entry.name for entry in os.scandir(root.path) if entry.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            scan.problems.append(f"the journal's directory {root.path} cannot be read ({reason(error)}): {_REMEDY}")
            return
        if root.only_machine is None:
            yield root.path, root.label
        for name in names:
            if _MACHINE_DIRECTORY.fullmatch(name) and root.only_machine in (None, name.partition(".")[0]):
                yield root.path / name, f"{root.label}/{name}"

    def _info(self, path: Path, label: str, root: Root, scan: Scan) -> JournalFileInfo | None:
        match = _FILE.fullmatch(path.name)
        if match is None:
            return None
        known = self._archived.get(path)
        try:
            if known is not None and path.stat(follow_symlinks=False).st_ino == known.inode:
                return known
            header, status = read_header(path)
        except FileNotFoundError:
            return None
        except (OSError, UnsupportedFileError) as error:
            scan.unreadable.append(_unreadable(path, label, match, error))
            return None
        is_archived = bool(match["archived"] or match["unclean"] or header.is_archived)
        return JournalFileInfo(path, label, match["kind"], root.is_volatile, is_archived, status.st_ino, header)


_REMEDY = "add the gateway's user to the group systemd-journal, and start the gateway again"


def _list_files(directory: Path, scan: Scan) -> list[Path] | None:
    """Return the files in a directory, None where it cannot be listed: its files may still exist."""
    try:
        return sorted(Path(entry) for entry in os.scandir(directory) if ".journal" in entry.name)
    except FileNotFoundError:
        return None
    except OSError as error:
        scan.problems.append(f"the journal's directory {directory} cannot be read ({reason(error)}): {_REMEDY}")
        return None


def _unreadable(path: Path, label: str, match: re.Match[str], error: OSError | UnsupportedFileError) -> UnreadableFile:
    name = _ARCHIVED_NAME.fullmatch(match["archived"] or "")
    denied = isinstance(error, PermissionError)
    text = reason(error) if isinstance(error, OSError) else str(error)
    remedy = f": {_REMEDY}" if denied else ""
    return UnreadableFile(
        path,
        label,
        match["kind"],
        f"the journal file {path} cannot be read ({text}){remedy}",
        denied,
        name["seqnum_id"] if name else None,
        int(name["head"], 16) if name else None,
    )
