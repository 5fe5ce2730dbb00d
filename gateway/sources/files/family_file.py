"""SYNC: one file of a family: its read position, the bytes that identify it, and its open descriptor.

Does not contain: the list of files and their order (`family`).
"""

from __future__ import annotations

import zlib
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from gateway.sources.file_reading.links import LinkRule
from gateway.sources.file_reading.open_file import NO_LINKS, OpenFile, UnreadableError
from gateway.sources.file_reading.places import HEAD_BYTES_MAX, LAST_BYTES_MAX, FileState, Place
from gateway.sources.file_reading.rotation import Entry, is_compressed
from gateway.sources.files.copies import holds_place, opening


@dataclass(slots=True, eq=False)
class FamilyFile:
    """One file: its read position, its last known state, and the open file."""

    place: Place
    size: int
    device: int | None = None  # None: from an earlier run, not found yet
    path: Path | None = None
    modified_ns: int = 0
    opened: OpenFile | None = None
    is_finished: bool = False
    was_finished: bool = False  # it grew again: late lines are waited for only once
    missed_looks: int = 0
    links: LinkRule = NO_LINKS  # by which it is opened
    may_grow: bool = True  # at the last poll it had the path, to which the program writes

    @property
    def unread_bytes(self) -> int:
        """Bytes that exist and are not read, as of the last poll."""
        return 0 if self.is_finished else max(0, self.size - self.place.position)

    @property
    def last_modified_ns(self) -> int:
        """The last known modification time."""
        return self.modified_ns if self.opened is None else self.opened.status().st_mtime_ns

    @property
    def holds_unread(self) -> bool:
        """Whether the file is open and has unread bytes."""
        if self.opened is None:
            return False
        return not self.is_finished or self.opened.status().st_size > self.place.position

    def close(self) -> None:
        """Close the file."""
        if self.opened is not None:
            self.opened.close()
            self.opened = None


def is_at(entry: Entry, file: FamilyFile) -> bool:
    """Return whether the file with the same inode is this file: a new file may reuse the inode of a removed one."""
    if entry.modified_ns == file.modified_ns and (is_compressed(entry.path) or entry.size == file.size):
        return True
    if file.is_finished and not file.place.head_bytes:
        return False  # it cannot be told from another file
    return holds_place(entry, file.place)


def may_be_at(entry: Entry, file: FamilyFile) -> bool:
    """Return whether the file with the same inode may be this file; true if this user may not read it."""
    try:
        return is_at(entry, file)
    except PermissionError:
        return True  # checked once it can be opened


def is_intact(file: FamilyFile) -> bool:
    """Return whether an open file still has all bytes that were read and seen, so was not truncated."""
    if file.opened is None or file.opened.is_compressed:
        return True
    return file.opened.status().st_size >= file.size and file.opened.holds_place(file.place)


def id_of(file: FamilyFile) -> tuple[int, int]:
    """Return the device and the inode, as `Entry.id` does."""
    return -1 if file.device is None else file.device, file.place.inode


def from_seen(seen: FileState, links: LinkRule, *, is_finished: bool = False) -> FamilyFile:
    """Return a file of an earlier run, not found yet."""
    return FamilyFile(seen.place, seen.size, modified_ns=seen.place.modified_ns, is_finished=is_finished, links=links)


def from_entry(entry: Entry) -> FamilyFile:
    """Return a file without read bytes."""
    size = 0 if is_compressed(entry.path) else entry.size
    file = FamilyFile(Place(entry.inode, 0, 0, 0, entry.modified_ns), size, entry.device, Path(entry.path))
    file.modified_ns, file.links = entry.modified_ns, entry.links
    return file


def count_as_read(file: FamilyFile) -> None:
    """Put the place at the file's end."""
    file.place = replace(file.place, position=file.size)
    file.is_finished = True
    if file.path is not None and not is_compressed(file.path.name):
        try:
            file.opened = OpenFile(file.path, links=file.links)
            note_head(file)
            note_last(file)
        except OSError:
            pass  # then its inode alone identifies it
        finally:
            file.close()


def note_head_of(file: FamilyFile) -> None:
    """Note the head of a file that may not stay open: another file may reuse its inode."""
    assert file.path is not None
    entry = Entry(str(file.path), *id_of(file), file.size, file.modified_ns, file.links)
    with suppress(OSError), opening(entry) as found:
        if found is not None and (found.device, found.inode) == id_of(file):
            file.opened = found
            note_head(file)
            file.opened = None


def note_head(file: FamilyFile) -> None:
    """Note the head of the open file."""
    assert file.opened is not None
    try:
        head = file.opened.read(HEAD_BYTES_MAX, 0)
    except (OSError, UnreadableError):
        return
    file.opened.forget_decoder()
    file.place = replace(file.place, head_bytes=len(head), head_crc32=zlib.crc32(head))


def note_last(file: FamilyFile) -> None:
    """Note the bytes before the place in the open file. Raises OSError."""
    assert file.opened is not None
    count = min(file.place.position, LAST_BYTES_MAX)
    last = file.opened.read(count, file.place.position - count)
    file.place = replace(file.place, last_bytes=len(last), last_crc32=zlib.crc32(last))
