"""The marker of a full disk: in a cluster, a restarted broker knows by it that its disk was full a moment ago.

| the look at the disk | the file `disk-was-full` |
|---|---|
| finds it full, and there is no marker | is made, synced |
| the same, and the marker cannot be made | stays absent: that is reported once, and the next look tries again |
| finds room, `kept_ms` have not passed with room, since the start at most | stays |
| finds room, and they have | is removed, unsynced: after a power cut the minute may begin again |

The file has its first line alone (FORMATS.md), and counts by its name. It has no times: clocks of two boots cannot be
compared.

Does not contain: when a disk is full (disk_watch.py), what follows from it (cluster/partition/room.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_broker.storage.files.atomic_files import encode_state, replace
from edge_broker.thread_checks import runs_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_broker.storage.files.data_age import Now
    from edge_broker.storage.files.filesystem import FileSystem

KIND = FILE = "disk-was-full"


class FullDiskMarker:
    """The marker in one data directory; `was_full`: it existed at the start."""

    def __init__(
        self, fs: FileSystem, data_dir: str, kept_ms: float, write_failed: Callable[[OSError], None] = lambda _: None
    ) -> None:
        """`kept_ms` is how long the disk must have room before the marker goes.

        `write_failed` receives the first error of several in a row, in the worker `files`.
        """
        self._fs, self._data_dir, self._kept_ms = fs, data_dir, kept_ms
        self._path = f"{data_dir}/{FILE}"
        self.was_full = self._exists = fs.exists(self._path)
        self._write_failed, self._has_failed = write_failed, False
        self._room_age_ms: int | None = None  # of the first look that found room

    @runs_in("files")
    def update(self, now: Now, *, is_full: bool) -> None:
        """Make the marker, synced, or remove it, as a look has found the disk."""
        try:
            if is_full:
                self._room_age_ms = None
                self._make()
            elif self._room_age_ms is None:
                self._room_age_ms = now.age_ms
            elif now.elapsed_ms(self._room_age_ms) >= self._kept_ms:
                self._remove()
        except OSError as error:
            if not self._has_failed:
                self._write_failed(error)
            self._has_failed = True
        else:
            self._has_failed = False

    def _make(self) -> None:
        if not self._exists:
            replace(self._fs, self._data_dir, FILE, encode_state(KIND, 1, []))
            self._exists = True

    def _remove(self) -> None:
        if self._exists:
            if self._fs.exists(self._path):
                self._fs.remove(self._path)
            self._exists = False
