"""SYNC: files of a path that the gateway's user may not read: set aside until they can be compared with known ones.

| a new name without read permission | then |
|---|---|
| is readable later | it is a copy of a known file, or a new file, as if it appeared then |
| is compressed meanwhile | the compressed file replaces it |
| is gone | lost, with its last known size |

Until then its content is unknown, so a known file that is missing may exist under that name. Source: open(2).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from gateway.sources.file_reading.rotation import Entry, is_compressed
from gateway.sources.files.copies import opening

MISSED_LOOKS_MIN = 2  # a scan may miss a name during a rename


@dataclass(slots=True)
class _DeniedFile:
    entry: Entry
    missed_looks: int = 0


class DeniedFiles:
    """The files that could not be opened at the last poll."""

    def __init__(self) -> None:
        self.error: OSError | None = None  # names one of them
        self._files: dict[tuple[int, int], _DeniedFile] = {}

    def __bool__(self) -> bool:
        return bool(self._files)

    def set_aside(self, strangers: Collection[Entry]) -> list[Entry]:
        """Return the new files that can be opened. Raises OSError for any error but a lack of permission."""
        self.error, readable = None, []
        for entry in strangers:
            try:
                with opening(entry):
                    readable.append(entry)
                    self._files.pop(entry.id, None)
            except PermissionError as error:
                error.filename = entry.path
                self.error = error
                self._files[entry.id] = _DeniedFile(entry)
        return readable

    def take_gone(self, entries: Collection[Entry]) -> list[Entry]:
        """Return once the files that are gone; a compressed file with the same modification time replaces one."""
        present = {entry.id for entry in entries}
        compressed = {entry.modified_ns for entry in entries if is_compressed(entry.path)}
        gone = []
        for file_id, denied in list(self._files.items()):
            denied.missed_looks = 0 if file_id in present else denied.missed_looks + 1
            if denied.missed_looks >= MISSED_LOOKS_MIN:
                del self._files[file_id]
                if denied.entry.modified_ns not in compressed:
                    gone.append(denied.entry)
        return gone
