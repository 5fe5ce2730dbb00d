"""SYNC: check whether two files hold the same lines: a renamed file, a copy, a compressed copy.

The first bytes (`Place.head_*`) and those before the place (`Place.last_*`) identify a file; the beginning and the end
identify an unfinished copy. Sources of copies: copytruncate, gzip and people; see logrotate(8).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.sources.file_reading.decompressed_file import CHECKING
from gateway.sources.file_reading.links import NotRegularError
from gateway.sources.file_reading.open_file import OpenFile, UnreadableError
from gateway.sources.file_reading.places import HEAD_BYTES_MAX, Place
from gateway.sources.file_reading.rotation import Entry, is_compressed, uncompressed_name

SAMPLE_BYTES = 256


@contextmanager
def opening(entry: Entry) -> Iterator[OpenFile | None]:
    """Open the file of the entry; None if it no longer exists.

    Raises OSError for any other error, such as EACCES or EMFILE: the file may exist.
    """
    try:
        file = OpenFile(Path(entry.path), CHECKING, entry.links)
    except (FileNotFoundError, NotADirectoryError, NotRegularError):
        yield None
        return
    try:
        yield file
    finally:
        file.close()


def holds_place(entry: Entry, place: Place) -> bool:
    """Return whether the file begins as that of `place`, with all bytes that were read; False if it is gone."""
    with opening(entry) as file:
        if file is None:
            return False
        try:
            return file.holds_place(place)
        except UnreadableError:
            return False


def is_copy(copy: Entry, file: OpenFile, place: Place) -> bool:
    """Return whether `copy`, perhaps unfinished, has the present or former content of `file`, read up to `place`."""
    if place.head_bytes and holds_place(copy, place):
        return True
    if is_compressed(copy.path):
        return False
    with opening(copy) as other:
        if other is None:
            return False
        size = min(copy.size, file.status().st_size)
        start = max(0, size - SAMPLE_BYTES)
        try:
            return size > 0 and all(
                file.read(count, at) == other.read(count, at)
                for at, count in ((0, min(size, HEAD_BYTES_MAX)), (start, size - start))
            )
        except UnreadableError:
            return False


def has_size(entry: Entry, size: int) -> bool:
    """Return whether the file's content has at least `size` bytes."""
    with opening(entry) as file:
        try:
            return file is not None and file.holds(size)
        except UnreadableError:
            return False


def is_being_compressed(entry: Entry, other_entries: Collection[Entry]) -> bool:
    """Return whether the original of this compressed copy still exists: then the original is read, not the copy."""
    plain = uncompressed_name(entry.path)
    return is_compressed(entry.path) and any(other.path == plain for other in other_entries)


def last_line_start(file: OpenFile, look_back_bytes: int = 65_536) -> int:
    """Return where the last line begins, or would begin; search at most `look_back_bytes` backwards."""
    end = file.status().st_size
    start = max(0, end - look_back_bytes)
    newline = file.read(end - start, start).rfind(b"\n")
    if newline < 0:
        return end if start else 0
    return start + newline + 1
