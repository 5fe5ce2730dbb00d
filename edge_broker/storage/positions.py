"""How far each partition is confirmed, written down every few seconds into two files in turn, in place.

| file | written |
|---|---|
| `recovery-point-offset-checkpoint` | every other time |
| `recovery-point-offset-checkpoint.2` | the other times |

| line | content |
|---|---|
| 1 | as of every file of state, kind `positions`, version 2 |
| 2 | `generation <n>`: the greater one of the two files is the newer |
| 3… | topic id (32 hex digits), partition, log start offset, base offset of the segment, position in it, offset there |
| last | empty lines, so that the size stays what it was: a whole number of pages |

Bytes that lie where they lay need no entry in the file system's journal: on ext4 that writes 5 KB to the card where a
new file and its name write 70 KB. What a cut tears is one of two; the other still says what was true before.

Lives here: those two files. Must never come in: what is confirmed (store.py), what it means (recovery.py).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from edge_broker.errors import StorageFault
from edge_broker.storage.state_files import encode_state, read_state, write_all

if TYPE_CHECKING:
    from edge_broker.storage.filesystem import FileSystem

KIND = "positions"
VERSION = 2
FILES = ("recovery-point-offset-checkpoint", "recovery-point-offset-checkpoint.2")
PAGE_BYTES = 4096
_GENERATION = "generation"

PartitionKey = tuple[uuid.UUID, int]


class Position(NamedTuple):
    """What was written down about a partition: its log start and its confirmed end."""

    log_start_offset: int
    segment_base: int
    position: int
    offset: int


class Stored(NamedTuple):
    """What one of the files says; version 1 had no generation."""

    generation: int
    file: int
    positions: dict[PartitionKey, Position]


class PositionsFiles:
    """The two files of a store; one thread at a time."""

    def __init__(self, fs: FileSystem, data_dir: str) -> None:
        self.stored: dict[PartitionKey, Position] = {}
        self._fs = fs
        self._data_dir = data_dir
        self._generation = 0
        self._newest = 1  # index of the file that is not written next

    def read(self) -> None:
        """Take what the newer file says, nothing when there is none; StorageFault or ValueError when both are lost."""
        try:
            found = newest(self._fs, self._data_dir)
        except FileNotFoundError:
            return
        self._generation, self._newest, self.stored = found

    def write(self, positions: dict[PartitionKey, Position]) -> None:
        """Write positions down, synced, if they differ from what is stored. OSError: the other file still counts."""
        if positions == self.stored:
            return
        index = 1 - self._newest
        path = f"{self._data_dir}/{FILES[index]}"
        new = not self._fs.exists(path)
        file = self._fs.create(path) if new else self._fs.open(path)
        write_all(file, _encoded(positions, self._generation + 1, 0 if new else file.size()), 0)
        file.datasync()
        if new:
            self._fs.sync_directory(self._data_dir)
        self._generation, self._newest, self.stored = self._generation + 1, index, positions


def newest(fs: FileSystem, data_dir: str) -> Stored:
    """What the newer of the files that can be read says; FileNotFoundError without files, StorageFault, ValueError."""
    found: list[Stored] = []
    faults: list[StorageFault | ValueError] = []
    for index in range(len(FILES)):
        try:
            found.append(_read(fs, data_dir, index))
        except FileNotFoundError:
            continue
        except (StorageFault, ValueError, IndexError) as fault:
            faults.append(fault if isinstance(fault, StorageFault) else ValueError(str(fault)))
    if not found:
        raise faults[0] if faults else FileNotFoundError(f"{data_dir}/{FILES[0]}")
    return max(found, key=lambda one: one.generation)


def read_positions(fs: FileSystem, data_dir: str) -> dict[PartitionKey, Position]:
    """What the last checkpoint says of each partition; FileNotFoundError, StorageFault, ValueError."""
    return newest(fs, data_dir).positions


def _read(fs: FileSystem, data_dir: str, index: int) -> Stored:
    generation, positions = 0, {}
    for line in read_state(fs, f"{data_dir}/{FILES[index]}", KIND, VERSION):
        if line[0] == _GENERATION:
            generation = int(line[1])
        elif line != [""]:
            positions[uuid.UUID(hex=line[0]), int(line[1])] = Position(*map(int, line[2:6]))
    return Stored(generation, index, positions)


def _encoded(positions: Mapping[PartitionKey, Position], generation: int, size: int) -> bytes:
    """The bytes of a file that has `size` bytes now: no fewer than those, and whole pages."""
    lines = [
        f"{_GENERATION} {generation}",
        *(f"{key.hex} {partition} {' '.join(map(str, at))}" for (key, partition), at in positions.items()),
    ]
    data = encode_state(KIND, VERSION, lines)
    whole = max(size, len(data)) + PAGE_BYTES - 1
    return encode_state(KIND, VERSION, [*lines, *[""] * (whole // PAGE_BYTES * PAGE_BYTES - len(data))])
