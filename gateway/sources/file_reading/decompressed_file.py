"""SYNC: read a compressed file forwards in bounded memory; a seek backwards starts again at its beginning.

| format | memory of a decoder | a file that needs more |
|---|---|---|
| gzip, bzip2 | below 4 MiB | none: the formats are bounded |
| xz, lzma | XZ_MEMORY_BYTES_MAX: `xz -9` needs 65 MiB | cannot be read |
| zstd | `zstd_file.WINDOW_BYTES_MAX` | cannot be read |

A small file may hold gigabytes: a step returns at most OUTPUT_BYTES, and a stop interrupts a seek between two steps.
All paths together decompress READERS_MAX files past OUTPUT_BYTES at a time, and compare CHECKS_MAX; others wait.
A file may have several streams, with NULs between and after them. Other bytes after a stream are corruption: they may
have been another stream. Sources: RFC 1952; the .xz file format; bzip2(1).
"""

from __future__ import annotations

import bz2
import lzma
import threading
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import BinaryIO, Protocol
from weakref import WeakSet

from gateway.sources.file_reading.interruption import raise_if_interrupted

XZ_MEMORY_BYTES_MAX = 66 << 20
INPUT_BYTES = 16_384
OUTPUT_BYTES = 65_536
READERS_MAX = 1
CHECKS_MAX = 1


class DecodersBusyError(Exception):
    """All decoder slots are in use: the content is unknown. Read the file later."""


class DecoderSlots:
    """Slots for at most `count` decoders, in any thread."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._holders: WeakSet[DecompressedFile] = WeakSet()
        self._lock = threading.Lock()

    def take(self, file: DecompressedFile) -> None:
        """Take a slot for the file until it releases it, or is garbage-collected; raise DecodersBusyError."""
        with self._lock:
            if file not in self._holders and len(self._holders) >= self._count:
                raise DecodersBusyError
            self._holders.add(file)

    def release(self, file: DecompressedFile) -> None:
        """Release the file's slot."""
        with self._lock:
            self._holders.discard(file)


READING = DecoderSlots(READERS_MAX)  # held from one call to the next
CHECKING = DecoderSlots(CHECKS_MAX)  # held during one call, so that each check ends


class DecompressedFile(ABC):
    """The decompressed content of a file."""

    def __init__(self, file: BinaryIO, slots: DecoderSlots | None = None) -> None:
        """Read `file` from its beginning, and own its position; `slots` None: no bound."""
        self._file = file
        self._slots = slots
        self._rewind()

    def close(self) -> None:
        """Discard the decoder, and release the slot."""
        self._end_stream()
        if self._slots is not None:
            self._slots.release(self)

    def _rewind(self) -> None:
        self._file.seek(0)
        self._position = 0
        self._ready = b""  # decompressed bytes after the position
        self._input = b""  # bytes read and not yet decompressed
        self._stream_count = 0  # begun so far
        self._error: Exception | None = None
        self._end_stream()

    def tell(self) -> int:
        """Return the position in the content."""
        return self._position

    def seek(self, position: int) -> None:
        """Go to a position, or to the end if the content is shorter.

        Raises OSError, EOFError, InterruptedRead, DecodersBusyError.
        """
        if position < self._position:
            self._rewind()
        while self._position < position and self._is_ready():
            raise_if_interrupted()
            self._take(position - self._position)

    def read(self, count: int) -> bytes:
        """Return `count` bytes, fewer only before the end or before corruption.

        Raises OSError, EOFError at the end, and DecodersBusyError; then the position is undefined.
        """
        pieces: list[bytes] = []
        left = count
        while left and self._is_ready(is_first=not pieces):
            pieces.append(self._take(left))
            left -= len(pieces[-1])
        return b"".join(pieces)

    def _is_ready(self, *, is_first: bool = True) -> bool:
        """Return whether content follows; corruption is an error only for the first step of a read."""
        try:
            while not self._ready and self._error is None:
                if self._slots is not None and self._position >= OUTPUT_BYTES:
                    self._slots.take(self)
                if not self._fill():
                    break
        except (EOFError, OSError) as error:
            self._error = error
        if not self._ready and self._error is not None and is_first:
            raise self._error
        return bool(self._ready)

    def _take(self, count: int) -> bytes:
        taken, self._ready = self._ready[:count], self._ready[count:]
        self._position += len(taken)
        return taken

    def _read_input(self, count: int) -> bytes:
        """Return bytes that are not yet decompressed, or read up to `count` more; empty at the file's end."""
        found = self._input or self._file.read(count)
        if not found and self._stream_count == 0:  # a power loss leaves empty files; no format allows one
            raise EOFError("the file is empty")
        return found

    @abstractmethod
    def _fill(self) -> bool:
        """Decompress one step into `_ready`, perhaps no byte; return False at the end. Raises OSError, EOFError."""

    @abstractmethod
    def _end_stream(self) -> None:
        """Discard the decoder of the present stream."""


class Decoder(Protocol):
    """Decompresses one stream, as the decoders of bz2 and lzma do."""

    @property
    def eof(self) -> bool:
        """Whether the stream has ended."""

    @property
    def needs_input(self) -> bool:
        """Whether the next step needs data."""

    @property
    def unused_data(self) -> bytes:
        """Data after the stream's end."""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Return at most `max_length` bytes more."""


class _GzipDecoder:
    """A decoder of one gzip member with its checksum; zlib's own has no `needs_input`."""

    def __init__(self) -> None:
        self._decoder = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._decoder.eof

    @property
    def unused_data(self) -> bytes:
        return self._decoder.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        found = self._decoder.decompress(self._decoder.unconsumed_tail + data, max_length)
        self.needs_input = len(found) < max_length and not self._decoder.unconsumed_tail
        return found


class StreamFile(DecompressedFile):
    """The content of a file of one or several gzip, bzip2, xz or lzma streams."""

    def __init__(self, file: BinaryIO, slots: DecoderSlots | None, make_decoder: Callable[[], Decoder]) -> None:
        """`make_decoder` makes the decoder of one stream."""
        self._make_decoder = make_decoder
        super().__init__(file, slots)

    def _end_stream(self) -> None:
        self._decoder: Decoder | None = None

    def _fill(self) -> bool:
        if self._decoder is None:
            self._input = self._read_input(INPUT_BYTES)
            if not self._input:
                return False
            rest = self._input.lstrip(b"\0")
            if self._stream_count:
                self._input = rest
            elif rest != self._input:  # lzma takes NULs for an empty stream
                raise OSError("the file begins with NULs")
            if not self._input:
                return True
            self._decoder = self._make_decoder()
            self._stream_count += 1
        data = b""
        if self._decoder.needs_input:
            data, self._input = self._read_input(INPUT_BYTES), b""
            if not data:
                raise EOFError("the file ends within a stream")
        self._ready = self._decompress(self._decoder, data)
        if self._decoder.eof:
            self._input = self._decoder.unused_data
            self._end_stream()
        return True

    def _decompress(self, decoder: Decoder, data: bytes) -> bytes:
        try:
            return decoder.decompress(data, OUTPUT_BYTES)
        except lzma.LZMAError as error:
            is_too_large = "limit" in str(error)
            needed = f"it needs more than {XZ_MEMORY_BYTES_MAX >> 20} MiB of memory"
            raise OSError(needed if is_too_large else str(error)) from error
        except (zlib.error, ValueError) as error:
            raise OSError(str(error)) from error


def gzip_file(file: BinaryIO, slots: DecoderSlots | None = None) -> DecompressedFile:
    """Return the content of a gzip file."""
    return StreamFile(file, slots, _GzipDecoder)


def bzip2_file(file: BinaryIO, slots: DecoderSlots | None = None) -> DecompressedFile:
    """Return the content of a bzip2 file."""
    return StreamFile(file, slots, bz2.BZ2Decompressor)


def xz_file(file: BinaryIO, slots: DecoderSlots | None = None) -> DecompressedFile:
    """Return the content of an xz or lzma file."""
    return StreamFile(file, slots, lambda: lzma.LZMADecompressor(memlimit=XZ_MEMORY_BYTES_MAX))
