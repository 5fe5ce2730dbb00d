"""The doctor's look at every data directory that a test leaves, in memory or below its temporary folder.

A directory in memory is looked at as its processes would see it, the broker perhaps still running: nothing is closed
first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edge_broker.storage.files.filesystem import FileSystem, ReadOnlyDisk
from edge_broker.storage.log_store import LogStore
from edge_broker.testing.checked import findings
from edge_broker.testing.disk import SimulatedDisk


class Seen:
    """The directories that a test opened, and the damage in them."""

    def __init__(self) -> None:
        self.opened: dict[tuple[int, str], tuple[SimulatedDisk, str]] = {}
        self.findings: list[str] = []

    def look_below(self, folder: Path | None) -> None:
        """Look at everything, the simulated disks first."""
        for disk, path in self.opened.values():
            disk.fault = disk.meanwhile = disk.witness = None
            disk.cold, disk.crash_at = False, -1
            if disk.exists(f"{path}/store"):
                self._look(disk, path, running=True)
        for found in sorted(folder.rglob("store")) if folder is not None else ():
            if found.is_file() and (found.parent / "topics").is_dir():
                self._look(ReadOnlyDisk(), str(found.parent), running=False)

    def _look(self, fs: FileSystem, path: str, *, running: bool) -> None:
        try:
            self.findings += [str(finding) for finding in findings(fs, path, running=running) if finding.damage]
        except OSError as error:
            self.findings.append(f"damage: {error}")


@contextmanager
def seen_by_doctor(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    """Note each simulated disk on which the block opens a store."""
    seen, original = Seen(), LogStore.open

    def opening(fs: FileSystem, data_dir: str, *arguments: Any, **named: Any) -> LogStore:
        if isinstance(fs, SimulatedDisk):
            seen.opened[id(fs), data_dir] = fs, data_dir
        return original(fs, data_dir, *arguments, **named)

    monkeypatch.setattr(LogStore, "open", opening)
    yield seen
