"""SYNC: read the files of one followed path in the order of writing, line by line.

Blocking: call it in one thread at a time. Does not contain: the list of files (`family`), Kafka, asyncio.

| state of the file that is read | next |
|---|---|
| has unread bytes | read its lines |
| at its end, the newest | wait for the newline of its last line |
| at its end, two newer files exist | finished: the program writes to another file |
| at its end, one newer file exists | finished after `quiet_s` without growth: the program may still write to it |
| does not begin or end with the bytes that were read | truncated: continue in its copy, or report the loss |

A finished file's last line is complete without a newline. A line longer than `line_bytes_max` becomes `TooLong`: only
its beginning is kept in memory. NULs that no program wrote are skipped and counted.
Not seen: lines written after copytruncate's copy and before its truncation. Rotation by renaming has no such gap.
Source: logrotate(8).
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gateway.sources.file_reading.decompressed_file import DecodersBusyError
from gateway.sources.file_reading.interruption import InterruptedRead
from gateway.sources.file_reading.line_splitter import LineSplitter, Piece
from gateway.sources.file_reading.links import LinkRule
from gateway.sources.file_reading.open_file import NO_LINKS, OpenFile, UnreadableError
from gateway.sources.file_reading.places import (
    HEAD_BYTES_MAX,
    LAST_BYTES_MAX,
    FamilyState,
    FileState,
    Item,
    Line,
    Place,
    TooLong,
    UnreadRest,
)
from gateway.sources.file_reading.rotation import is_compressed
from gateway.sources.files.family import Family, LostFile
from gateway.sources.files.family_file import FamilyFile

CHUNK_BYTES = 65_536


class Tail:
    """Follows `path` from `state` (None: a path not seen before); each `read` takes a bounded step."""

    def __init__(
        self,
        path: Path,
        state: FamilyState | None,
        *,
        line_bytes_max: int,
        quiet_s: float,
        clock: Callable[[], float] = time.monotonic,
        start_at_end: bool = False,
        rotated: str | None = None,
        is_alone: bool = True,
        is_followed: Callable[[Path], bool] = lambda _path: False,
        links: LinkRule = NO_LINKS,
    ) -> None:
        self._family = Family(
            path,
            state,
            rotated=rotated,
            is_alone=is_alone,
            is_followed=is_followed,
            start_at_end=start_at_end,
            links=links,
        )
        self._state = state
        self._line_bytes_max = line_bytes_max
        self._quiet_s = quiet_s
        self._clock = clock
        self._splitter = LineSplitter(line_bytes_max)
        self._current: FamilyFile | None = None
        self._opened: OpenFile | None = None  # the file of the last read: a copy is another file
        self._head = b""  # the first bytes of the current file that have been read
        self._last = b""  # the bytes before the read position: they detect truncation
        self._taken = b""  # the known bytes before the file's place
        self._quiet_since_s: float | None = None  # the first read that found the file's end
        self._older: tuple[FileState, ...] = ()
        self._newer: tuple[FileState, ...] = ()
        self._changes = -1
        self.nul_bytes = 0  # skipped so far

    def close(self) -> None:
        """Close the files; returned states stay valid."""
        self._family.close()

    def find_files(self) -> None:
        """Find and open new files, so that they outlive their names. Raises as `read` does."""
        self._family.update()

    def read(self) -> list[Item]:
        """Return new lines and losses, of about CHUNK_BYTES at most; empty if there are none.

        Raises OSError, InterruptedRead and DecodersBusyError; after losses, only at the next call.
        """
        items: list[Item] = []
        before = 0
        is_new = self._state is None
        try:
            self._family.update()
            before = len(self._family.lost)
            self._read_next(items, is_new=is_new)
        except (OSError, InterruptedRead, DecodersBusyError):
            if not self._family.lost:
                raise
        lost = [UnreadRest(one.place, one.bytes, one.why, one.kind) for one in self._family.lost]
        self._family.lost.clear()
        return [*lost[:before], *items, *lost[before:]]

    def _read_next(self, items: list[Item], *, is_new: bool) -> None:
        if self._current is not None and not self._family.has(self._current):
            self._current = None  # it was truncated, and has no copy
        file = self._family.next_to_read()
        if file is not None and (file is not self._current or file.opened is not self._opened):
            self._start(file)
        if self._current is not None and self._changes != self._family.changes:
            self._note_others()
        if file is not None and not is_new:  # the caller may save the first place before the first line is read
            self._read(file, items)

    @property
    def trouble(self) -> OSError | None:
        """The reason why a file with unread bytes is not read now."""
        return self._family.trouble

    @property
    def left_out(self) -> dict[Path, str]:
        """Files with a matching name that are not opened, each with the reason."""
        return self._family.left_out

    def unread_bytes(self) -> int:
        """Return the unread bytes of the known files, with a last line without its newline."""
        return sum(file.unread_bytes for file in self._family.files)

    def unread_open_bytes(self) -> int:
        """Return the unread bytes of the open files."""
        return sum(file.unread_bytes for file in self._family.files if file.opened is not None)

    @property
    def has_unread_copy(self) -> bool:
        """Whether a compressed file has unread content, of unknown size."""
        return any(
            file.path is not None and is_compressed(file.path.name) and not file.is_finished
            for file in self._family.files
        )

    @property
    def is_open(self) -> bool:
        """Whether a file of the path was found, under its own name or another one."""
        return any(file.path is not None or file.opened is not None for file in self._family.files)

    def has_read(self, inode: int, size: int) -> bool:
        """Return whether all files are read and that one is the newest; a last line without newline may remain."""
        newest = self._family.newest
        if newest is None or newest.place.inode != inode or newest is not self._current:
            return False
        others = sum(file.unread_bytes for file in self._family.files[:-1])
        return not others and size == newest.place.position + self._splitter.held_bytes

    @property
    def newest_path(self) -> Path | None:
        """The present name of the newest file."""
        return None if self._family.newest is None else self._family.newest.path

    @property
    def changes(self) -> int:
        """The number of changes to the list of files."""
        return self._family.changes

    @property
    def inodes(self) -> set[int]:
        """The inodes of all files that belong to the path."""
        return {file.place.inode for file in self._family.files}

    def is_at(self, path: Path) -> bool:
        """Return whether a file of this path has that name now, too. Raises OSError."""
        return self._family.is_at(path)

    @property
    def missing(self) -> UnreadRest | None:
        """The loss if the file that is read next is never found again."""
        missing = [file for file in self._family.files if file.path is None and file.opened is None]
        return next(
            (UnreadRest(file.place, None, "the file was removed") for file in missing if not file.is_finished), None
        )

    @property
    def state(self) -> FamilyState | None:
        """The read positions of all files, or None before the path was first seen."""
        return self._state

    @property
    def place(self) -> Place | None:
        """The place in the file that is read now."""
        return None if self._state is None else self._state.place

    def _start(self, file: FamilyFile) -> None:
        assert file.opened is not None
        if self._opened is not None:
            self._opened.forget_decoder()  # other paths may use the decoder slot
        self._current, self._opened = file, file.opened
        position = file.place.position
        self._splitter.start(position)
        self._quiet_since_s = None
        self._last = b""
        try:
            self._head = file.opened.read(HEAD_BYTES_MAX, 0)
            if not file.opened.is_compressed and file.opened.begins_with(file.place.head_bytes, file.place.head_crc32):
                start = max(0, position - LAST_BYTES_MAX)
                self._last = file.opened.read(position - start, start)
        except UnreadableError:
            self._head = b""
        self._taken = self._last
        self._note_others()

    def _note_others(self) -> None:
        assert self._current is not None
        place = self._current.place
        self._state = self._family.state(self._current, place)
        self._older, self._newer = self._state.older, self._state.newer
        self._changes = self._family.changes

    # Reading

    def _read(self, file: FamilyFile, items: list[Item]) -> None:
        assert file.opened is not None
        start = file.place.position + self._splitter.held_bytes
        try:
            start = self._skip_hole(file.opened, start)
            chunk = file.opened.read(CHUNK_BYTES, start)
        except UnreadableError as error:
            self._unreadable(file, error)
            return
        head, modified_ns = self._present_head(file.opened, start + len(chunk)), file.opened.status().st_mtime_ns
        # Checked after reading, so that the check covers the bytes just read
        if not file.opened.is_compressed and not self._is_intact(file, start):
            self._family.restart(file, start)
        elif chunk:
            self._head = head
            file.place = replace(file.place, head_bytes=len(head), head_crc32=zlib.crc32(head), modified_ns=modified_ns)
            self._take(file, chunk, items)
        elif self._is_finished(file):
            self._emit(file, self._splitter.finish(), items)
            self._family.finish(file)
            self._current = None

    def _skip_hole(self, opened: OpenFile, start: int) -> int:
        if not self._splitter.at_line_start:
            return start
        data = opened.data_start(start)
        self._splitter.skip_hole(data - start)
        if data > start:
            self._last = b""
        return data

    def _is_intact(self, file: FamilyFile, start: int) -> bool:
        assert file.opened is not None
        if len(self._head) < file.place.head_bytes:
            self._head = file.opened.read(file.place.head_bytes, 0)
        if file.opened.status().st_size < start or file.opened.read(len(self._head), 0) != self._head:
            return False
        if zlib.crc32(self._head[: file.place.head_bytes]) != file.place.head_crc32:
            return False
        return file.opened.read(len(self._last), start - len(self._last)) == self._last

    def _present_head(self, opened: OpenFile, end: int) -> bytes:
        if len(self._head) >= HEAD_BYTES_MAX or opened.is_compressed:
            return self._head
        return opened.read(min(end, HEAD_BYTES_MAX), 0)

    def _take(self, file: FamilyFile, chunk: bytes, items: list[Item]) -> None:
        self._quiet_since_s = None
        self._last = (self._last + chunk)[-LAST_BYTES_MAX:]
        self._emit(file, self._splitter.feed(chunk), items)

    def _emit(self, file: FamilyFile, pieces: list[Piece], items: list[Item]) -> None:
        for piece in pieces:
            before = file.place
            self._taken = (self._taken + piece.content)[-LAST_BYTES_MAX:] if piece.is_whole else b""
            file.place = Place(  # three times as fast as replace()
                before.inode,
                before.position + piece.size,
                before.head_bytes,
                before.head_crc32,
                before.modified_ns,
                len(self._taken),
                zlib.crc32(self._taken),
            )
            after = self._state = FamilyState(file.place, self._older, self._newer, file.size)
            if piece.text is None:
                self.nul_bytes += piece.length
            elif piece.length > self._line_bytes_max:
                items.append(TooLong(piece.text, piece.length, before.inode, before.position, after))
            else:
                items.append(Line(piece.text, before.inode, before.position, after))

    def _is_finished(self, file: FamilyFile) -> bool:
        """Return whether the file, read to its end, is finished."""
        assert file.opened is not None
        newer = self._family.newer_than(file)
        if file.opened.is_compressed or newer > 1:
            return True
        if not newer:
            return False
        if file.was_finished and not self._splitter.held_bytes:
            return True
        now_s = self._clock()
        if self._quiet_since_s is None:
            self._quiet_since_s = now_s
        return now_s - self._quiet_since_s >= self._quiet_s

    def _unreadable(self, file: FamilyFile, error: UnreadableError) -> None:
        self._family.lost.append(LostFile(file.place, None, str(error)))
        self._family.finish(file)
        self._current = None
