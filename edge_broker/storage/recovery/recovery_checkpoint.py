"""How far each partition is confirmed, recorded every few seconds into two files in turn (double_buffered_file.py).

An entry: topic id (32 hex digits), partition, log start offset, base offset of the segment, position in it, offset
there.

Does not contain: what is confirmed (log_store.py), what it means (open_partition.py).
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, NamedTuple

from edge_broker.storage.files.double_buffered_file import TwinFiles

if TYPE_CHECKING:
    from edge_broker.storage.files.filesystem import FileSystem

KIND = "positions"
VERSION = 2
FILES = ("recovery-point-offset-checkpoint", "recovery-point-offset-checkpoint.2")

PartitionKey = tuple[uuid.UUID, int]


class Position(NamedTuple):
    """The stored position of a partition: its log start and its confirmed end."""

    log_start_offset: int
    segment_base: int
    position: int
    offset: int


class PositionsFiles:
    """The two files of a store; one thread at a time."""

    def __init__(self, fs: FileSystem, data_dir: str) -> None:
        self.stored: dict[PartitionKey, Position] = {}
        self._twins = TwinFiles(fs, data_dir, FILES, KIND, VERSION)

    def read(self) -> None:
        """Take what the newer file says, nothing when there is none; StorageFault or ValueError when both are lost."""
        try:
            entries = self._twins.read()
            self.stored = dict(map(_entry, entries))
        except FileNotFoundError:
            return
        except IndexError as error:
            raise ValueError(str(error)) from error

    def write(self, positions: dict[PartitionKey, Position]) -> None:
        """Write positions down, synced, if they differ from what is stored. OSError: the other file still counts."""
        if positions == self.stored:
            return
        self._twins.write(
            [f"{key.hex} {partition} {' '.join(map(str, at))}" for (key, partition), at in positions.items()]
        )
        self.stored = positions


def read_positions(fs: FileSystem, data_dir: str) -> dict[PartitionKey, Position]:
    """Return each partition's entry in the last checkpoint, nothing without one; StorageFault, ValueError."""
    files = PositionsFiles(fs, data_dir)
    files.read()
    return files.stored


def _entry(fields: list[str]) -> tuple[PartitionKey, Position]:
    return (uuid.UUID(hex=fields[0]), int(fields[1])), Position(*map(int, fields[2:6]))
