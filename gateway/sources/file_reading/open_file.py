"""SYNC: read one open file at any position, uncompressed or compressed by gzip, bzip2, xz or zstd.

An open file keeps its content when its last name is removed. Positions are those of the uncompressed content. Only
regular files are opened, through no link that the rule excludes (`links`), and opening never blocks. Source: open(2).
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from drupelet.printable import name_text
from gateway.sources.file_reading.decompressed_file import (
    READING,
    DecodersBusyError,
    DecoderSlots,
    DecompressedFile,
    bzip2_file,
    gzip_file,
    xz_file,
)
from gateway.sources.file_reading.links import LinkRule, NotRegularError, irregular_kind
from gateway.sources.file_reading.places import Place
from gateway.sources.file_reading.rotation import is_compressed


def _zstd(file: BinaryIO, slots: DecoderSlots) -> DecompressedFile:
    from gateway.sources.file_reading.zstd_file import ZstdFile  # noqa: PLC0415 (the library's memory, only where a file needs it)

    return ZstdFile(file, slots)


NO_LINKS = LinkRule()
_READERS: dict[str, Callable[[BinaryIO, DecoderSlots], DecompressedFile]] = {
    ".gz": gzip_file,
    ".bz2": bzip2_file,
    ".xz": xz_file,
    ".lzma": xz_file,
    ".zst": _zstd,
}


def can_read(path: Path) -> bool:
    """Return whether the gateway reads the format of that file name."""
    return not is_compressed(path.name) or path.suffix in _READERS


class UnreadableError(Exception):
    """The content of a compressed file cannot be read: an unsupported format, or corruption."""


class OpenFile:
    """A file opened for reading."""

    def __init__(self, path: Path, slots: DecoderSlots = READING, links: LinkRule = NO_LINKS) -> None:
        """Open the file; raise OSError, or NotRegularError for an irregular file or a link."""
        descriptor = links.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        status = os.fstat(descriptor)
        if kind := irregular_kind(status):
            os.close(descriptor)
            raise NotRegularError(f"{name_text(path)} is {kind}: name a regular file in the configuration")
        self._file: BinaryIO = os.fdopen(descriptor, "rb", buffering=0)
        self.path = path
        self.device, self.inode = status.st_dev, status.st_ino
        self.is_compressed = is_compressed(path.name)
        self._slots = slots
        self._reader: DecompressedFile | None = None

    def status(self) -> os.stat_result:
        """Return the present status of the file itself."""
        return os.fstat(self._file.fileno())

    def read(self, count: int, position: int) -> bytes:
        """Return at most `count` bytes of the content; empty at its end.

        Raises OSError; of compressed files UnreadableError, InterruptedRead and DecodersBusyError.
        """
        if not self.is_compressed:
            return os.pread(self._file.fileno(), count, position)
        try:
            if self._reader is None:
                self._reader = self._decompress()
            self._reader.seek(position)
            return b"" if self._reader.tell() < position else self._reader.read(count)
        except DecodersBusyError:
            self.forget_decoder()  # it has no slot
            raise
        except (EOFError, OSError) as error:
            raise UnreadableError(f"{name_text(self.path)} cannot be decompressed ({error})") from error

    def holds(self, size: int) -> bool:
        """Return whether the content has at least `size` bytes. Raises OSError and UnreadableError."""
        return size == 0 or bool(self.read(1, size - 1))

    def begins_with(self, head_bytes: int, head_crc32: int) -> bool:
        """Return whether the checksum of the first `head_bytes` matches. Raises OSError and UnreadableError."""
        head = self.read(head_bytes, 0) if head_bytes else b""
        return len(head) == head_bytes and zlib.crc32(head) == head_crc32

    def holds_place(self, place: Place) -> bool:
        """Return whether the content begins as the file of `place`, and has all bytes that were read.

        A power loss may leave NULs instead of the last bytes. Raises OSError and UnreadableError.
        """
        if not self.begins_with(place.head_bytes, place.head_crc32) or not self.holds(place.position):
            return False
        last = self.read(place.last_bytes, place.position - place.last_bytes)
        return zlib.crc32(last) == place.last_crc32 or not last.strip(b"\0")

    def data_start(self, position: int) -> int:
        """Return the position of the next data from `position` on, after a hole. Raises OSError."""
        if self.is_compressed:
            return position
        try:
            return os.lseek(self._file.fileno(), position, os.SEEK_DATA)
        except OSError:  # ENXIO: no data after that position; or a file system without holes
            return position

    def forget_decoder(self) -> None:
        """Release the decoder slot; the next read starts at the beginning of this file."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def close(self) -> None:
        """Close the file."""
        self.forget_decoder()
        self._file.close()

    def _decompress(self) -> DecompressedFile:
        opener = _READERS.get(self.path.suffix)
        if opener is None:
            raise UnreadableError(f"{name_text(self.path)} is compressed in a format that the gateway does not read")
        return opener(self._file, self._slots)
