"""SYNC: reads a zstd file forwards in bounded memory; a position before the present one starts again at the beginning.

| bound | why |
|---|---|
| INPUT_BYTES at a time | a block of 4 bytes may hold 128 KiB: at most 4 MiB come of one step |
| WINDOW_BYTES_MAX | RFC 8878 asks decoders for it; `zstd` needs more with --ultra -20 and above, and with --long |

A file of several frames, and skippable frames, are read. An incomplete frame is an EOFError, as of gzip.
Source: RFC 8878, sections 3.1.1 and 3.1.2; zstd(1).
"""

from __future__ import annotations

from typing import Any, BinaryIO

import zstandard

INPUT_BYTES = 128
WINDOW_BYTES_MAX = 8 << 20


class ZstdFile:
    """The decompressed content of a file."""

    def __init__(self, file: BinaryIO) -> None:
        """Read `file`, whose position is this reader's, from its beginning."""
        self._file = file
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES_MAX)
        self._rewind()

    def _rewind(self) -> None:
        self._file.seek(0)
        self._position = 0
        self._ready = b""  # decompressed, from the position on
        self._input = b""  # read, and not decompressed
        self._frame: Any = None  # None: the next frame has not begun
        self._error: Exception | None = None

    def tell(self) -> int:
        """Return the position in the content."""
        return self._position

    def seek(self, position: int) -> None:
        """Go to a position, or to the end where the content is shorter. Raises OSError, EOFError."""
        if position < self._position:
            self._rewind()
        while self._position < position and self._is_ready():
            self._take(position - self._position)

    def read(self, count: int) -> bytes:
        """Return `count` bytes, fewer only before the end or damage. Raises OSError, EOFError where none are left."""
        pieces: list[bytes] = []
        left = count
        while left and self._is_ready(is_first=not pieces):
            pieces.append(self._take(left))
            left -= len(pieces[-1])
        return b"".join(pieces)

    def _is_ready(self, *, is_first: bool = True) -> bool:
        """Whether content follows; damage is an error only for the first piece of a read."""
        try:
            while not self._ready and self._error is None and self._fill():
                pass
        except (EOFError, OSError) as error:
            self._error = error
        if not self._ready and self._error is not None and is_first:
            raise self._error
        return bool(self._ready)

    def _take(self, count: int) -> bytes:
        taken, self._ready = self._ready[:count], self._ready[count:]
        self._position += len(taken)
        return taken

    def _fill(self) -> bool:
        """Decompress a step further; False: the file has ended."""
        self._input = self._input or self._file.read(INPUT_BYTES)
        if not self._input:
            if self._frame is not None:
                raise EOFError("the file ends within a frame")
            return False
        self._frame = self._frame or self._decompressor.decompressobj()
        try:
            self._ready = self._frame.decompress(self._input)
        except zstandard.ZstdError as error:
            raise OSError(str(error)) from error
        self._input = self._frame.unused_data if self._frame.eof else b""
        if self._frame.eof:
            self._frame = None
        return True
