"""Keep a copy of the tail that a start truncates from a segment: never used again, but there for inspection.

Contains: the copies, `<base offset>.cut-<leader epoch>`. Does not contain: what is cut, and why
(open_partition.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edge_broker.storage.files.atomic_files import OUT_OF_SPACE, write_all
from edge_broker.storage.segment.batch_scan import CHUNK_BYTES
from edge_broker.storage.segment.segment import Segment

if TYPE_CHECKING:
    from edge_broker.storage.files.filesystem import File

CUT_BYTES_MAX = 16 << 20
CUT_FILES_KEPT = 4


def copy_tail(segment: Segment, position: int, leader_epoch: int, names: Sequence[str], notes: list[str]) -> str:
    """Copy the bytes after a position, at most 16 MiB, unless all are zero or no space is left; return what was kept.

    `names` are those in the directory, where the oldest copies go. OSError.
    """
    size = min(segment.size - position, CUT_BYTES_MAX)
    if _all_zero(segment.file, position, size):
        return "none of them worth keeping"
    fs, directory = segment.files.fs, segment.directory
    _drop_old(segment, names)
    name = _name(segment, leader_epoch)
    copied = 0
    try:
        target = fs.create(f"{directory}/{name}")
        while copied < size:
            chunk = segment.file.read(min(CHUNK_BYTES, size - copied), position + copied)
            if not chunk:
                break
            write_all(target, chunk, copied)
            copied += len(chunk)
        target.datasync()
        fs.sync_directory(directory)
    except OSError as error:
        if error.errno not in OUT_OF_SPACE:
            raise
        fs.remove(f"{directory}/{name}")
        notes.append(f"{directory}/{name}: no space to keep the cut bytes")
        return "none of them kept"
    return f"{copied} of them kept in {name}"


def keep_whole(segment: Segment, leader_epoch: int, names: Sequence[str]) -> str:
    """Give a segment's file the name of a copy without reading it; that name. `names` as for copy_tail. OSError."""
    _drop_old(segment, names)
    name = _name(segment, leader_epoch)
    segment.files.fs.rename(segment.path, f"{segment.directory}/{name}")
    return name


def _name(segment: Segment, leader_epoch: int) -> str:
    return segment.name(f"cut-{leader_epoch}")


def _drop_old(segment: Segment, names: Sequence[str]) -> None:
    cuts = [name for name in names if ".cut-" in name and name.rpartition("-")[2].isdigit()]
    cuts.sort(key=lambda name: int(name.rpartition("-")[2]))
    for name in cuts[: -CUT_FILES_KEPT + 1]:
        segment.files.fs.remove(f"{segment.directory}/{name}")


def _all_zero(file: File, position: int, size: int) -> bool:
    end = position + size
    while position < end:
        chunk = bytes(file.read(min(CHUNK_BYTES, end - position), position))
        if not chunk or chunk.count(0) != len(chunk):
            return not chunk
        position += len(chunk)
    return True
