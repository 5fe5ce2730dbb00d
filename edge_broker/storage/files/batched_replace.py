"""Files of state of many directories, replaced together: three syncfs where each file would take two syncs of its own.

| step | what is done |
|---|---|
| `replace` | the new bytes go under a temporary name, as in atomic_files.py; nothing is synced |
| `finish` | one syncfs for all bytes; the renames, one syncfs for the names; the same for the names that come last |
| syncfs fails, or proves nothing here | each file and each directory is synced on its own |

A crash before the renames leaves the old files, one amid them some new ones, but no name that comes last without all
others of its directory. One directory that fails costs no other.

Does not contain: which files, when. Source: syncfs(2).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

from edge_broker.storage.files.atomic_files import synced_all, temporary_name, write_all

if TYPE_CHECKING:
    from edge_broker.storage.files.filesystem import FileSystem


Names: TypeAlias = "dict[str, list[str]]"
"""By directory, in the order in which they are put in place."""


class BatchedFiles:
    """Files that are being replaced on the file system of `path`; one thread."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs = fs
        self._path = path
        self._first: Names = defaultdict(list)
        self._last: Names = defaultdict(list)

    def replace(self, directory: str, name: str, data: bytes, *, last: bool = False) -> None:
        """Write what `finish` will put under a name; `last`: after the directory's others. OSError: call `drop`."""
        write_all(self._fs.create(temporary_name(directory, name)), data, 0)
        (self._last if last else self._first)[directory].append(name)

    def drop(self, directory: str) -> None:
        """Leave a directory's files as they are; the next start removes what was written."""
        self._first.pop(directory, None)
        self._last.pop(directory, None)

    def finish(self) -> dict[str, OSError]:
        """Put everything in place, durably; the directories where that failed, and why."""
        failed: dict[str, OSError] = {}
        together = synced_all(self._fs, self._path)
        for names in (self._first, self._last):
            self._put_all(names, failed, synced=together)
            together = together and synced_all(self._fs, self._path)
            if not together:
                self._sync_names(names, failed)
        return failed

    def _put_all(self, names: Names, failed: dict[str, OSError], *, synced: bool) -> None:
        for directory in names:
            try:
                if directory not in failed:
                    self._put(directory, names[directory], synced=synced)
            except OSError as error:
                failed[directory] = error

    def _put(self, directory: str, names: list[str], *, synced: bool) -> None:
        temporaries = [temporary_name(directory, name) for name in names]
        if not synced:
            for temporary in temporaries:
                self._fs.open(temporary).datasync()
        for temporary, name in zip(temporaries, names, strict=True):
            self._fs.rename(temporary, f"{directory}/{name}")

    def _sync_names(self, names: Names, failed: dict[str, OSError]) -> None:
        for directory in names:
            try:
                self._fs.sync_directory(directory)
            except OSError as error:
                failed.setdefault(directory, error)
