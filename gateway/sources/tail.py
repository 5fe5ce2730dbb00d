"""SYNC: follows one growing file through rotation; knows nothing of Kafka or asyncio. Blocking: call it in a thread.

A place in a file is an inode, a byte position and the CRC-32 of the file's head, since inodes are reused and a file
truncated in place keeps its own; files that begin with the same HEAD_BYTES_MAX bytes cannot be told apart by it.
Where the place went is looked for among the file and its rotated siblings (its name with a suffix, not compressed):

| found | then |
|---|---|
| same inode, same head, long enough | read on |
| a sibling with that inode (rename) or with that head (copytruncate's copy) | read it to its end, then the newer ones |
| nowhere | `Gone`: what was unread is lost, and reading starts at the oldest file changed since |

A last line without its newline is waited for while the file may grow. In a rotated file it is complete as it stands,
but only after `quiet_polls_max` reads without growth, as the writer may still have the old file open. Lines longer than
`line_bytes_max` become `TooLong`: counted, and only their beginning is held in memory.
What cannot be seen: lines written after copytruncate's copy and before its truncation, and all that a file last seen
empty held when copytruncate came before the next read. Rotation by renaming has neither gap.
Source: logrotate(8).
"""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from gateway.sources.matches import kind_of
from gateway.sources.rotation import is_compressed, source_of

HEAD_BYTES_MAX = 256
CHUNK_BYTES = 65_536
KEPT_BYTES_MAX = 65_536  # of a line that is too long
SIBLINGS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Place:
    """Where reading stands: everything before `position` has been taken; `head_*` tell the file from another.

    The head is as much of the file's first HEAD_BYTES_MAX bytes as was there, whether taken or not. `modified_ns` is
    the file's change time when that was read: files changed later are the newer ones.
    """

    inode: int
    position: int
    head_bytes: int
    head_crc32: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class Line:
    """A line without its newline; `position` is its start, `after` the place to save once it is safe."""

    text: bytes
    inode: int
    position: int
    after: Place


@dataclass(frozen=True, slots=True)
class TooLong:
    """A line left out because of its length, `bytes`; `beginning` is what was kept of it, at most KEPT_BYTES_MAX."""

    beginning: bytes
    bytes: int
    inode: int
    position: int
    after: Place


@dataclass(frozen=True, slots=True)
class Gone:
    """The file of `place` has disappeared or was truncated, and its copy is nowhere: what was unread is lost."""

    place: Place


class NotRegularError(OSError):
    """The path is a directory, a FIFO or a device; the message names it and the remedy."""


Item = Line | TooLong | Gone


class Tail:
    """Follows `path` from `place` (None: a file not seen before); each `read` takes a bounded step."""

    def __init__(
        self,
        path: Path,
        place: Place | None,
        *,
        line_bytes_max: int,
        quiet_polls_max: int,
        start_at_end: bool = False,
    ) -> None:
        self._path = path
        self._line_bytes_max = line_bytes_max
        self._quiet_polls_max = quiet_polls_max
        self._start_at_end = start_at_end
        self._file: BinaryIO | None = None
        self._place = place
        self._head = b""  # the open file's first bytes, as far as they have been read
        self._buffer = b""  # read, but not yet a whole line
        self._skipped_bytes = 0  # in front of the buffer: the beginning of a line that is too long
        self._skipped = b""  # of that beginning, what is kept
        self._quiet_polls = 0

    def close(self) -> None:
        """Close the file; the places handed out stay valid."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def read(self) -> list[Item]:
        """Return what is new, at most about CHUNK_BYTES of it; empty when there is nothing. Raises OSError."""
        items: list[Item] = []
        if self._file is None and not self._open(items):
            return items
        assert self._file is not None
        start = self._read_position
        chunk = os.pread(self._file.fileno(), CHUNK_BYTES, start)
        # Checked after reading, so that the check covers the bytes just read
        if not _begins_with(self._file, self._head, start):
            self._truncated(items)
        elif chunk:
            self._quiet_polls = 0
            if len(self._head) < HEAD_BYTES_MAX:
                self._head = os.pread(self._file.fileno(), min(start + len(chunk), HEAD_BYTES_MAX), 0)
            self._split(chunk, items)
        elif self._is_rotated():
            self._finish_rotated(items)
        return items

    def unread_bytes(self) -> int:
        """Return how much of the open file is unread, a last line without its newline included."""
        if self._file is None or self._place is None:
            return 0
        return max(0, os.fstat(self._file.fileno()).st_size - self._place.position)

    @property
    def is_open(self) -> bool:
        """Whether the file was found, under its own name or a rotated one's."""
        return self._file is not None

    def is_at(self, path: Path) -> bool:
        """Whether the file that is read now has this name, too. Raises OSError."""
        status = _status(path)
        if self._file is not None:
            own = os.fstat(self._file.fileno())
            return (own.st_dev, own.st_ino) == (status.st_dev, status.st_ino)
        place = self._place
        if place is None or status.st_ino != place.inode or status.st_size < place.position:
            return False
        with path.open("rb", buffering=0) as file:
            return zlib.crc32(os.pread(file.fileno(), place.head_bytes, 0)) == place.head_crc32

    @property
    def place(self) -> Place | None:
        """Where reading stands now, or None before the file was first seen."""
        return self._place

    @property
    def _read_position(self) -> int:
        assert self._place is not None
        return self._place.position + self._skipped_bytes + len(self._buffer)

    # Opening: where is the place now?

    def _open(self, items: list[Item]) -> bool:
        if self._place is None:
            return self._open_new()
        place = self._place
        file = self._find(place.inode, place.head_bytes, place.head_crc32, place.position)
        if file is not None:
            self._start(file, place.position)
            return True
        newer = [path for path in self._candidates() if _status(path).st_mtime_ns > place.modified_ns]
        if not newer:
            return False  # the file may be between two names, or not written to yet: look again later
        items.append(Gone(place))
        self._start_at_beginning(newer[0])
        return self._file is not None

    def _open_new(self) -> bool:
        file = _open_regular(self._path)
        if file is None:
            return False
        self._start(file, _last_line_start(file) if self._start_at_end else 0)
        return False  # the caller may save that place before the first line is taken

    def _start(self, file: BinaryIO, position: int) -> None:
        if file is not self._file:
            self.close()
        self._file = file
        self._head = os.pread(file.fileno(), HEAD_BYTES_MAX, 0)
        self._buffer = b""
        self._skipped_bytes = 0
        self._skipped = b""
        self._quiet_polls = 0
        status = os.fstat(file.fileno())
        self._place = self._place_at(Place(status.st_ino, 0, 0, 0, status.st_mtime_ns), position)

    def _start_at_beginning(self, path: Path) -> None:
        file = _open_regular(path)
        if file is not None:  # else it was rotated away this moment; the place that stands leads to it again
            self._start(file, 0)

    def _find(self, inode: int, head_bytes: int, head_crc32: int, size_min: int) -> BinaryIO | None:
        """Open the file that is meant: the one with the inode if its head fits, else the newest one whose head does."""
        candidates = self._candidates()
        same_inode = [path for path in candidates if _status(path).st_ino == inode]
        for path in same_inode + (candidates[::-1] if head_bytes else []):
            file = _open_regular(path)
            if file is None:
                continue
            head = os.pread(file.fileno(), head_bytes, 0)
            if len(head) == head_bytes and zlib.crc32(head) == head_crc32 and _size(file) >= size_min:
                return file
            file.close()
        return None

    def _candidates(self) -> list[Path]:
        """Return the rotated siblings, oldest first, then the file itself."""
        own, inode = self._path.name, None if self._place is None else self._place.inode
        siblings = [
            Path(entry.path)
            for entry in os.scandir(self._path.parent)
            if entry.name != own and (entry.inode() == inode or _is_sibling(entry.name, own))
        ]
        return _oldest_first(siblings, own) + ([self._path] if self._path.exists() else [])

    # Reading: lines out of bytes

    def _split(self, chunk: bytes, items: list[Item]) -> None:
        assert self._file is not None
        assert self._place is not None
        self._place = replace(self._place, modified_ns=os.fstat(self._file.fileno()).st_mtime_ns)
        lines = (self._buffer + chunk).split(b"\n")
        self._buffer = lines.pop()
        for text in lines:
            self._emit(text, 1, items)
        if len(self._buffer) > self._line_bytes_max:
            self._skipped = self._skipped or self._buffer[:KEPT_BYTES_MAX]
            self._skipped_bytes += len(self._buffer)
            self._buffer = b""

    def _emit(self, text: bytes, newline_bytes: int, items: list[Item]) -> None:
        assert self._place is not None
        before = self._place
        length = self._skipped_bytes + len(text)
        beginning = (self._skipped or text)[:KEPT_BYTES_MAX]
        self._skipped_bytes = 0
        self._skipped = b""
        self._place = self._place_at(before, before.position + length + newline_bytes)
        if length > self._line_bytes_max:
            items.append(TooLong(beginning, length, before.inode, before.position, self._place))
        else:
            items.append(Line(text, before.inode, before.position, self._place))

    def _place_at(self, before: Place, position: int) -> Place:
        if before.head_bytes == HEAD_BYTES_MAX:
            return replace(before, position=position)
        return Place(before.inode, position, len(self._head), zlib.crc32(self._head), before.modified_ns)

    # Rotation and truncation

    def _truncated(self, items: list[Item]) -> None:
        """Go on in the copy that copytruncate made, or report what was unread and start at the beginning."""
        assert self._file is not None
        assert self._place is not None
        place = self._place
        copy = self._find(place.inode, len(self._head), zlib.crc32(self._head), self._read_position)
        if copy is not None:
            self._start(copy, place.position)
            return
        items.append(Gone(place))
        self._start(self._file, 0)

    def _is_rotated(self) -> bool:
        """Whether the path is another file by now and this one has been quiet long enough since."""
        assert self._file is not None
        try:
            rotated = self._path.stat().st_ino != os.fstat(self._file.fileno()).st_ino
        except FileNotFoundError:
            rotated = self._following() is not None  # between two names, the next file is yet to be made
        self._quiet_polls = self._quiet_polls + 1 if rotated else 0
        return self._quiet_polls > self._quiet_polls_max

    def _finish_rotated(self, items: list[Item]) -> None:
        """Take the last line as it stands and go on with the next newer file."""
        following = self._following()
        if following is None:
            return
        if self._buffer or self._skipped_bytes:
            text, self._buffer = self._buffer, b""
            self._emit(text, 0, items)
        self._start_at_beginning(following)

    def _following(self) -> Path | None:
        assert self._file is not None
        status = os.fstat(self._file.fileno())
        candidates = self._candidates()
        inodes = [_status(path).st_ino for path in candidates]
        if status.st_ino in inodes:
            newer = candidates[inodes.index(status.st_ino) + 1 :]
        else:  # it was deleted after rotation: what changed after it is newer
            newer = [path for path in candidates if _status(path).st_mtime_ns >= status.st_mtime_ns]
        return newer[0] if newer else None


def _is_sibling(name: str, own: str) -> bool:
    return not is_compressed(name) and source_of(name, (own,)) is not None


def _oldest_first(paths: Iterable[Path], prefix: str) -> list[Path]:
    """Sort by last change, then by number (app.log.2 is older than app.log.1), then by the suffix, which may be a date.

    Only regular files stay, and of those the SIBLINGS_MAX newest.
    """

    def age(path: Path, status: os.stat_result) -> tuple[int, int, str]:
        number = path.name[len(prefix) + 1 :]
        return status.st_mtime_ns, -int(number) if number.isdecimal() and len(number) < 6 else 0, number

    aged = [(age(path, status), path) for path in paths if stat.S_ISREG((status := _status(path)).st_mode)]
    return [path for _, path in sorted(aged)][-SIBLINGS_MAX:]


_NO_FILE = os.stat_result((0,) * 10)


def _status(path: Path) -> os.stat_result:
    """Return the file's status, all zero when it is no more."""
    try:
        return path.stat()
    except FileNotFoundError:
        return _NO_FILE


def _open_regular(path: Path) -> BinaryIO | None:
    """Open a file, or return None where there is none; raises OSError for what is not a regular file (it may block)."""
    status = _status(path)
    if status is _NO_FILE:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise NotRegularError(f"{path} is {kind_of(status.st_mode)}: name a regular file in the configuration")
    try:
        return path.open("rb", buffering=0)
    except FileNotFoundError:
        return None


def _size(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


def _begins_with(file: BinaryIO, head: bytes, size_min: int) -> bool:
    return _size(file) >= size_min and os.pread(file.fileno(), len(head), 0) == head


def _last_line_start(file: BinaryIO) -> int:
    """Return where the last line begins, or would begin; looks back at most CHUNK_BYTES."""
    end = _size(file)
    start = max(0, end - CHUNK_BYTES)
    newline = os.pread(file.fileno(), end - start, start).rfind(b"\n")
    if newline < 0:
        return end if start else 0
    return start + newline + 1
