"""A small state that changes often, in two files that are overwritten in turn, in place.

| line | content |
|---|---|
| 1 | as of every file of state |
| 2 | `generation <n>`: the greater one of the two files is the newer |
| 3… | the state's entries |
| last | empty lines, so that the size stays what it was: a whole number of pages |

Bytes that lie where they lay need no entry in the file system's journal: on ext4 that writes 5 KB to the card where a
new file and its name write 70 KB. A power loss tears one of the two; the other still has the previous content. A file
is made whole, under another name first, so that no reader finds an empty one. A file that was much larger is replaced.

Contains: the two files. Does not contain: what the entries mean (recovery_checkpoint.py, dirty_markers.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from edge_broker.errors import StorageFault
from edge_broker.storage.files.atomic_files import checked_body, read_whole, replace, with_head, write_all

if TYPE_CHECKING:
    from edge_broker.storage.files.filesystem import FileSystem

PAGE_BYTES = 4096
SHRINKS_AT = 16  # a file of so many times what it needs costs more with each write than a new one does once
_GENERATION = "generation"


class Twin(NamedTuple):
    """The contents of one of the two files, its entries in fields; without a generation it is 0."""

    generation: int
    file: int
    entries: list[list[str]]


class TwinFiles:
    """The two files of one state; one thread at a time."""

    def __init__(self, fs: FileSystem, data_dir: str, names: tuple[str, str], kind: str, version: int) -> None:
        self._fs = fs
        self._data_dir = data_dir
        self._names = names
        self._kind = kind
        self._version = version
        self._generation = 0
        self._newest = 1  # index of the file that is not written next

    def read(self) -> list[list[str]]:
        """The entries of the newer file that can be read; FileNotFoundError, StorageFault."""
        found: list[Twin] = []
        faults: list[StorageFault] = []
        for index in range(len(self._names)):
            try:
                found.append(self._read(index))
            except FileNotFoundError:
                continue
            except StorageFault as fault:
                faults.append(fault)
        if not found:
            raise faults[0] if faults else FileNotFoundError(f"{self._data_dir}/{self._names[0]}")
        newest = max(found, key=lambda one: one.generation)
        self._generation, self._newest = newest.generation, newest.file
        return newest.entries

    def write(self, lines: Sequence[str]) -> None:
        """Write entries down, synced. OSError: the other file still counts, and this one is written next."""
        index = 1 - self._newest
        path = f"{self._data_dir}/{self._names[index]}"
        data = self._encode(lines, 0)
        file = self._fs.open(path) if self._fs.exists(path) else None
        if file is None or file.size() > SHRINKS_AT * len(data):
            replace(self._fs, self._data_dir, self._names[index], data)
        else:
            write_all(file, self._encode(lines, file.size()), 0)
            file.datasync()
        self._generation, self._newest = self._generation + 1, index

    def _read(self, index: int) -> Twin:
        path = f"{self._data_dir}/{self._names[index]}"
        generation, entries = 0, []
        body = checked_body(path, read_whole(self._fs, path), self._kind, self._version)
        for line in (text.split(" ") for text in body.rstrip(b"\n").decode().splitlines()):
            if line[0] == _GENERATION:
                generation = _number(path, line)
            elif line != [""]:
                entries.append(line)
        return Twin(generation, index, entries)

    def _encode(self, lines: Sequence[str], size: int) -> bytes:
        """The bytes of a file that has `size` bytes now: no fewer than those, and whole pages."""
        body = "".join(f"{line}\n" for line in (f"{_GENERATION} {self._generation + 1}", *lines)).encode()
        bytes_now = len(with_head(self._kind, self._version, body))
        whole = max(size, bytes_now) + PAGE_BYTES - 1
        padding = b"\n" * (whole // PAGE_BYTES * PAGE_BYTES - bytes_now)
        return with_head(self._kind, self._version, body + padding)


def _number(path: str, line: list[str]) -> int:
    try:
        return int(line[1])
    except (IndexError, ValueError):
        raise StorageFault(path, 0, "its generation is no number; restore the file from a copy") from None
