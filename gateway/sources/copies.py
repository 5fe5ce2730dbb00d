"""SYNC: whether two files hold the same lines: a file under another name, a copy, a compressed copy.

A file is told by its first bytes (`Place.head_*`) and by those before the place (`Place.last_*`); a copy that is still
being made, by its beginning and its end. Copies are made by copytruncate, gzip and people; see logrotate(8).
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.sources.open_file import OpenFile, UnreadableError
from gateway.sources.places import HEAD_BYTES_MAX, Place
from gateway.sources.rotation import Entry, is_compressed, uncompressed

SAMPLE_BYTES = 256


@contextmanager
def opened(entry: Entry) -> Iterator[OpenFile | None]:
    """Open the file that the entry stands for; None where it has gone or may not be read."""
    try:
        file = OpenFile(Path(entry.path))
    except OSError:
        yield None
        return
    try:
        yield file
    finally:
        file.close()


def holds_place(entry: Entry, place: Place) -> bool:
    """Whether the file begins as the one of `place` did, and has all that was read of it."""
    with opened(entry) as file:
        if file is None:
            return False
        try:
            begins = file.begins_with(place.head_bytes, place.head_crc32)
            return begins and file.holds(place.position) and _has_last(file, place)
        except (OSError, UnreadableError):
            return False


def _has_last(file: OpenFile, place: Place) -> bool:
    """Whether the bytes before the place are those that were read; NULs are what a power cut leaves of them."""
    last = file.read(place.last_bytes, place.position - place.last_bytes)
    return zlib.crc32(last) == place.last_crc32 or not last.strip(b"\0")


def is_copy(copy: Entry, file: OpenFile, place: Place) -> bool:
    """Whether `copy` holds what `file`, read up to `place`, holds or held, as far as the copy has been made."""
    if place.head_bytes and holds_place(copy, place):
        return True
    if is_compressed(copy.path):
        return False
    with opened(copy) as other:
        if other is None:
            return False
        size = min(copy.size, file.status().st_size)
        start = max(0, size - SAMPLE_BYTES)
        try:
            return size > 0 and all(
                file.read(count, at) == other.read(count, at)
                for at, count in ((0, min(size, HEAD_BYTES_MAX)), (start, size - start))
            )
        except (OSError, UnreadableError):
            return False


def was_copied(copy: Entry, place: Place, last: bytes, read_bytes: int) -> bool:
    """Whether `copy` begins as the file of `place` did and has the `last` bytes that were read of it, too."""
    with opened(copy) as file:
        if file is None:
            return False
        try:
            begins = file.begins_with(place.head_bytes, place.head_crc32) and file.holds(read_bytes)
            return begins and file.read(len(last), read_bytes - len(last)) == last
        except (OSError, UnreadableError):
            return False


def is_being_compressed(entry: Entry, others: Collection[Entry]) -> bool:
    """Whether the file that this is a compressed copy of exists still: it is read, and not the copy."""
    plain = uncompressed(entry.path)
    return is_compressed(entry.path) and any(other.path == plain for other in others)


def last_line_start(file: OpenFile, look_back_bytes: int = 65_536) -> int:
    """Return where the last line begins, or would begin; looks back at most `look_back_bytes`."""
    end = file.status().st_size
    start = max(0, end - look_back_bytes)
    newline = file.read(end - start, start).rfind(b"\n")
    if newline < 0:
        return end if start else 0
    return start + newline + 1
