"""A file with one entry, whose kind is its name: `store`, `leader-epoch`, `producer-ids`, `clean-shutdown`.

Contains: reading and replacing such a file. Does not contain: the meaning of the entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_broker.errors import StorageFault
from edge_broker.storage.files.atomic_files import encode_state, read_state, replace

if TYPE_CHECKING:
    from edge_broker.storage.files.filesystem import FileSystem


def read_entry(fs: FileSystem, data_dir: str, name: str) -> str:
    """Return the only entry of a file. OSError; StorageFault: it is missing or corrupt."""
    path = f"{data_dir}/{name}"
    try:
        lines = read_state(fs, path, name)
    except FileNotFoundError:
        raise StorageFault(path, 0, "is missing; restore it from a copy of the data directory") from None
    if len(lines) != 1 or len(lines[0]) != 1:
        raise StorageFault(
            path, 0, f"has {len(lines)} entries where one belongs; restore it from a copy of the data directory"
        )
    return lines[0][0]


def write_entry(fs: FileSystem, data_dir: str, name: str, entry: object) -> None:
    """Replace a file, synced. OSError."""
    replace(fs, data_dir, name, encode_state(name, 1, [str(entry)]))
