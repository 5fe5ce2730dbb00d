"""Check with the doctor a data directory that a test leaves.

Contains: what a check finds, without printing. Does not contain: which findings a test expects.
"""

from __future__ import annotations

from edge_broker.doctor.check import find
from edge_broker.doctor.directory import DataDirectory
from edge_broker.doctor.findings import Finding
from edge_broker.storage.files.filesystem import FileSystem


def findings(fs: FileSystem, data_dir: str = "/data", *, running: bool = False) -> list[Finding]:
    """Return the doctor's findings in a data directory; `running`: a broker has it open."""
    return find(DataDirectory(fs, data_dir, 1 if running else None), None)
